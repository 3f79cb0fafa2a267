"""One learner divided: `learners(sharding="fsdp")`. JAX over 8 CPUs, torch over 2, 3 or 8 processes; tf2 refuses."""

import json
import sys
from functools import cache
from pathlib import Path
from subprocess import run
from typing import Any

import divided
import needs
import numpy as np
import pytest
from launched import start
from learning import ppo_config, weights

from plugrad.errors import ConfigError

PROGRAM = Path(__file__).with_name("lives_on_shared_devices.py")
TESTS = PROGRAM.parent.parent
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
    expected = {
        "jax": "sees one device",
        "torch": r'type .learners\(launcher="env"\) and start the program with torchrun',
    }
    with pytest.raises(ConfigError, match=expected.get(backend, f"'{backend}' does not shard a learner")):
        config.build_learner()
    with pytest.raises(ConfigError, match="found learners in others"):
        config.learners(num_learners=2).build_learner()
    if backend != "torch":
        with pytest.raises(
            ConfigError, match="does not shard a learner over the processes of launcher='env'"
        ):
            config.learners(launcher="env").build_learner()


def test_a_module_that_was_put_on_no_device_is_not_shared() -> None:
    needs.backend("jax")
    from plugrad_jax.devices import mesh_of, num_devices

    assert mesh_of(None) is None
    assert num_devices(None) == 1


# --- torch: processes ---

LIVES = pytest.mark.parametrize("life", ["ppo", "sac", "ppo own"])


@pytest.fixture(scope="module", params=[2, *(pytest.param(size, marks=pytest.mark.long) for size in (3, 8))])
def processes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[Any]]:
    """Where processes saved, and what each found; each has had some or none of the 12 rows of an update.

    Not torch's `LocalTensorMode(8)`, one process that stands for eight: there the rank is no int, so that nobody takes
    his own slice of a vector, and no collective can send what differs by rank.
    """
    needs.backend("torch")
    folder = tmp_path_factory.mktemp("divided")
    whole = divided.learner_of("ppo")
    divided.trained(whole, "ppo", range(3))
    whole.save_to_path(folder / "whole")
    started = start([str(TESTS / "divided.py"), str(folder)], size=request.param)
    said = [each.communicate(timeout=120 * request.param)[0] for each in started]
    assert [each.returncode for each in started] == [0] * request.param, "\n".join(said)
    return folder, [dict(np.load(folder / f"{rank}.npz")) for rank in range(request.param)]


@cache
def alone(life: str) -> dict[str, Any]:
    """One learner with the rows of both processes."""
    algorithm, own = life.split()[0], life.endswith("own")
    divided.SEEN.clear()
    learner = divided.learner_of(algorithm, own=own)
    losses = divided.trained(learner, algorithm, range(divided.UPDATES))
    obs = divided.rows_of(algorithm, 99)["obs"]
    return {
        "learner": learner,
        "losses": losses,
        "seen": str(divided.SEEN[0]),
        "state": divided.state_of(learner),
        "acted": learner.compute_actions(obs, explore=False)["action_dist_inputs"],
    }


@LIVES
def test_a_learner_divided_over_processes_computes_what_one_computes(processes: Any, life: str) -> None:
    """Losses, clipped gradients by Adam's slots, weights and targets after 20 steps; names that hooks see."""
    one = alone(life)
    for each in processes[1]:
        for name in ("losses", "state", "acted"):
            np.testing.assert_allclose(each[f"{life} {name}"], one[name], rtol=0, atol=1e-6, err_msg=name)
        assert str(each[f"{life} seen"]) == one["seen"]


@LIVES
def test_between_updates_a_process_keeps_its_part(processes: Any, life: str) -> None:
    """Of parameters, m, v and targets, and no gradients. While it acts it has the parameters whole."""
    learner = alone(life)["learner"]
    vectors = [own.layout.size for own in learner.registered_optimizers.values()]
    targets = [len(own.variable.read()) for own in learner.targets.values()]
    few = 8 * len(vectors)  # what stands for a missing parameter, and the count of steps
    for rank, found in enumerate(processes[1]):
        of = [len(part_of(size, rank, len(processes[1]))) for size in (*vectors, *targets)]
        parts = [3 * each for each in of[: len(vectors)]] + of[len(vectors) :]
        for when in ("at first", "between", "undone", "at last"):
            assert int(found[f"{life} bytes {when}"]) <= 4 * sum(parts) + few, when
        assert int(found[f"{life} bytes acting"]) >= 4 * sum(parts)


def part_of(size: int, rank: int, num_processes: int) -> range:
    """The last process has the smallest part."""
    most = -(-size // num_processes)
    return range(size)[rank * most : (rank + 1) * most]


@LIVES
def test_an_error_in_one_process_leaves_all_as_they_were(processes: Any, life: str) -> None:
    # Of more than two processes some learn first that a third one has left, because learner 1 had.
    others = "CollectiveError: learner 1 left" if len(processes[1]) == 2 else "CollectiveError: learner "
    for rank, each in enumerate(processes[1]):
        assert str(each[f"{life} failed"]).startswith("ZeroDivisionError" if rank == 1 else others)
        np.testing.assert_array_equal(each[f"{life} undone"], each[f"{life} state"])


@LIVES
def test_checkpoints_cross_between_divided_and_whole(processes: Any, life: str) -> None:
    """Saved divided: goes on divided and whole. Saved whole: see the next. Weights that are set reach all parts."""
    folder, found = processes
    algorithm, half = life.split()[0], range(divided.UPDATES // 2, divided.UPDATES)
    learner = divided.learner_of(algorithm, own=life.endswith("own"))
    learner.restore_from_path(folder / life / "half")
    divided.trained(learner, algorithm, half)
    np.testing.assert_allclose(divided.state_of(learner), alone(life)["state"], rtol=0, atol=1e-6)
    given = divided.numbers(alone(life)["learner"].get_weights())
    for each in found:
        np.testing.assert_array_equal(each[f"{life} state again"], each[f"{life} state"])
        np.testing.assert_allclose(each[f"{life} set"], given + 1, rtol=0, atol=1e-6)


def test_the_two_halves_of_a_step_are_divided_too(processes: Any) -> None:
    learner = divided.learner_of("ppo")
    learner.restore_from_path(processes[0] / "whole")
    for _ in range(2):
        learner.forward_backward(divided.rows_of("ppo", 3)).result()
    learner.optim_step().result()
    for each in processes[1]:
        np.testing.assert_allclose(each["ppo verbs"], weights(learner), rtol=0, atol=1e-6)


def test_what_cannot_be_divided_is_an_error_at_build(processes: Any) -> None:
    for each in processes[1]:
        for name, words in {
            "compiled": 'type .framework(compile="none")',
            "optimizer": "(OwnAdam), which may look at a whole vector: type one of .training(optimizer=",
            "undo": "type config.training(undo=True)",
        }.items():
            assert words in str(each[f"refused {name}"])
