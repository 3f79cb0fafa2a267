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
LIVES = [f"{name} {mode}" for name in ("ppo", "dqn", "sac") for mode in ("auto", "none", "forward_train")]


@cache
def numbers_on(device: str) -> Any:
    """What each life computed, all in one process."""
    needs.backend("jax")
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
