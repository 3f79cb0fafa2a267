"""Learners of the jax backend on a device that is not JAX's default one: the second of two CPUs."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest

PROGRAM = Path(__file__).with_name("lives_on_jax_devices.py")
LIVES = [
    *(f"{name} {mode}" for name in ("ppo", "dqn", "sac") for mode in ("auto", "none")),
    "ppo forward_train",
    *(f"{name} {mode}" for name in ("flax_model", "optax_optimizer", "a_group") for mode in ("auto", "none")),
    "layers_in_a_module none",
    "images auto",
    "saved_and_loaded auto",
    "undone auto",
    "undone none",
    "arrays_of_the_other_device auto",
    "arrays_of_the_other_device none",
    "tensors_of_the_device auto",
    "two_threads auto",
    "many_learners auto",
]


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python without what the environment says of JAX."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return subprocess.run(
        [sys.executable, *command],
        env=own | environment,
        capture_output=True,
        text=True,
        check=False,
    )


ONLY_CPUS = "cpu"
"""The platforms of a process that sees no GPU; "" are all."""


@cache
def lives_on(device: str, platforms: str) -> subprocess.CompletedProcess[str]:
    """All lives, in one process."""
    own = {"JAX_PLATFORMS": platforms, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    own |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}  # what other tests compiled is loaded
    return run(str(PROGRAM), device, *LIVES, **own)


def numbers_on(device: str, platforms: str = ONLY_CPUS) -> Any:
    """What each life computed."""
    done = lives_on(device, platforms)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@cache
def sees_a_gpu() -> bool:
    """Whether JAX does, asked in another process, so that this one takes no memory of it."""
    return run("-c", "import jax; print(jax.default_backend())").stdout.strip() == "gpu"


@pytest.fixture
def gpu() -> str:
    """A GPU of JAX."""
    if not sees_a_gpu():
        pytest.skip(needs.NO_GPU_OF_JAX)
    return "cuda:0"


@pytest.fixture(autouse=True)
def _jax() -> None:
    needs.backend("jax")
    needs.extra("flax")
    needs.extra("optax")


@pytest.mark.parametrize("life", LIVES)
def test_a_learner_on_the_second_device_has_no_array_elsewhere_and_the_bits_of_the_first(life: str) -> None:
    found, expected = numbers_on("cpu:1")[life], numbers_on("cpu")[life]
    assert len(expected) > 50
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("life", LIVES)
def test_a_learner_on_the_cpu_of_a_machine_with_a_gpu_has_no_array_on_the_gpu(gpu: str, life: str) -> None:
    np.testing.assert_array_equal(numbers_on("cpu", platforms="")[life], numbers_on("cpu")[life])


@pytest.mark.parametrize("life", LIVES)
def test_a_learner_on_a_gpu_has_no_array_on_the_cpu_and_agrees_with_it(gpu: str, life: str) -> None:
    """A product in TF32 is wrong by 1e-3."""
    found, expected = numbers_on(gpu, platforms="")[life], numbers_on("cpu")[life]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


NAMES = """
import jax
jax.config.update("jax_num_cpu_devices", 2)
from plugrad_jax.backend import backend_info
info = backend_info()
print(info.devices, [info.device_aliases[each] for each in ("cpu:0", "cpu:1", "cpu")])
"""


def test_devices_have_the_names_that_jax_prints() -> None:
    done = run("-c", NAMES, JAX_PLATFORMS=ONLY_CPUS)
    assert done.stdout == "('cpu', 'cpu:1') ['cpu', 'cpu:1', 'cpu']\n", done.stderr
