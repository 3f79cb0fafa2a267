"""Learners of the jax backend on a device that is not JAX's default one: the second of two CPUs."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import needs
import pytest

PROGRAM = Path(__file__).with_name("lives_on_jax_devices.py")
MODES = ("auto", "none")
LIVES = [
    *(f"{algorithm} {mode}" for algorithm in ("ppo", "dqn", "sac") for mode in (*MODES, "forward_train")),
    *(
        f"{life} {mode}"
        for life in (
            "flax_model",
            "layers_in_a_module",
            "optax_optimizer",
            "images",
            "a_group",
            "saved_and_loaded",
            "undone",
            "arrays_of_the_other_device",
            "two_threads",
        )
        for mode in MODES
    ),
    "many_learners auto",
]


@cache
def numbers_on(device: str) -> Any:
    """What each life computed, all in one process."""
    needs.backend("jax")
    needs.extra("flax")
    needs.extra("optax")
    own = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), device, *LIVES],
        env=own | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("life", LIVES)
def test_a_learner_on_the_second_device_has_no_array_elsewhere_and_the_bits_of_the_first(life: str) -> None:
    assert numbers_on("cpu:1")[life] == numbers_on("cpu")[life]


NAMES = """
import jax
jax.config.update("jax_num_cpu_devices", 2)
from plugrad_jax.backend import backend_info
info = backend_info()
print(info.devices, [info.device_aliases[each] for each in ("cpu:0", "cpu:1", "cpu")])
"""


def test_devices_have_the_names_that_jax_prints() -> None:
    needs.backend("jax")
    own = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    command = [sys.executable, "-c", NAMES]
    done = subprocess.run(
        command, env=own | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True, check=False
    )
    assert done.stdout == "('cpu', 'cpu:1') ['cpu', 'cpu:1', 'cpu']\n", done.stderr
