"""One learner on several devices: `learners(sharding="fsdp")`. JAX shards, on eight CPUs; other backends refuse."""

import json
import sys
from functools import cache
from pathlib import Path
from subprocess import run
from typing import Any

import needs
import numpy as np
import pytest
from learning import ppo_config

from plugrad.errors import ConfigError

PROGRAM = Path(__file__).with_name("lives_on_shared_devices.py")
DEVICES = 8


@cache
def eight_cpus() -> Any:
    """What learners computed and kept, in one process."""
    done = run([sys.executable, str(PROGRAM)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def found() -> Any:
    """See `eight_cpus`."""
    needs.backend("jax")
    needs.extra("flax")
    needs.extra("optax")
    return eight_cpus()


def is_divided(bytes_of_variables: dict[str, dict[str, int]], num_parameters: int) -> bool:
    """Whether each device has an equal part of each vector, and all parts together are one copy of each."""
    each = [[*found.values()] for found in bytes_of_variables.values()]
    vectors = [max(found) * DEVICES for found in each]
    padding = 4 * DEVICES * len(vectors)
    is_equal = all(len(found) == DEVICES and min(found) == max(found) for found in each)
    return is_equal and 4 * num_parameters <= sum(vectors) < 4 * num_parameters + padding


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_a_shared_learner_computes_what_one_device_computes(found: Any, algorithm: str) -> None:
    alone, shared = (found["lives"][f"{algorithm} {kind}"] for kind in ("alone", "shared"))
    assert (alone["device"], shared["device"]) == ("cpu", "cpu:0-7")
    assert alone["mode"] == shared["mode"]
    assert alone["mode"].startswith("complete_update")
    assert [each.keys() for each in alone["results"]] == [each.keys() for each in shared["results"]]
    for name in ("weights", "slots", "acted"):
        np.testing.assert_allclose(shared[name], alone[name], rtol=0, atol=1e-6, err_msg=name)
    for one, other in zip(alone["results"], shared["results"], strict=True):
        np.testing.assert_allclose(list(other.values()), list(one.values()), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_hooks_see_the_names_and_shapes_of_one_device(found: Any, algorithm: str) -> None:
    alone, shared = (found["lives"][f"{algorithm} {kind}"] for kind in ("alone", "shared"))
    assert shared["gradients"] == alone["gradients"]
    assert shared["refs"] == alone["refs"] == sorted(alone["gradients"])


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_each_device_keeps_an_eighth_of_parameters_and_slots(found: Any, algorithm: str) -> None:
    life, bytes_found = found["lives"][f"{algorithm} shared"], found["bytes"][algorithm]
    num_parameters = sum(int(np.prod(shape)) for shape in life["gradients"].values())
    num_followed = sum(
        int(np.prod(shape)) for ref, shape in life["gradients"].items() if "/qf" in ref and algorithm == "sac"
    )
    assert is_divided(bytes_found, 3 * num_parameters + num_followed)  # weights, m, v; a target network


def test_a_slot_that_is_left_whole_is_found(found: Any) -> None:
    gradients = found["lives"]["ppo shared"]["gradients"]
    assert not is_divided(found["left whole"], 3 * sum(int(np.prod(each)) for each in gradients.values()))


def test_nothing_else_of_a_learner_is_left_on_its_devices(found: Any) -> None:
    """Also no parts of vectors, batches or weights: an eighth, and a few numbers such as learning rates."""
    (alone, *others), shared = found["all bytes"]
    assert alone > 5000
    assert others == [0] * (DEVICES - 1)
    assert max(shared) < 0.11 * alone + 64


def test_what_is_not_sharded_is_an_error_at_build(found: Any) -> None:
    for name, words in {
        "own layers": "'default_policy' has layers of its own",
        "own optimizer": "an optimizer of optax",
        "seeds": "many seeds",
    }.items():
        assert "sharding='fsdp'" in found["refusals"][name]
        assert words in found["refusals"][name]


def test_a_backend_that_cannot_shard_here_says_so_at_build(backend: str) -> None:
    """JAX sees one CPU in this process."""
    config = ppo_config(backend).learners(sharding="fsdp")
    expected = "sees one device" if backend == "jax" else f"backend '{backend}' does not shard a learner"
    with pytest.raises(ConfigError, match=expected):
        config.build_learner()
    with pytest.raises(ConfigError, match="found learners in others"):
        config.learners(num_learners=2).build_learner()


def test_a_module_that_was_put_on_no_device_is_not_shared() -> None:
    needs.backend("jax")
    from plugrad_jax.devices import mesh_of, num_devices

    assert mesh_of(None) is None
    assert num_devices(None) == 1
