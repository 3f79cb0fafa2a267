"""Learners on devices that stand in for a GPU, in a process of their own: frameworks make devices once."""

import os
import subprocess
import sys
from pathlib import Path

import needs
import pytest
import stand_ins

HERE = Path(__file__).parent
CHOSEN = {
    "torch": [""],
    "tf2": ["(ppo or undone or exchange or stay_there or fault) and not resets"],
    "jax": ["impala or stay_there or fault"],
}
"""Expressions of `pytest -k`, a process each, since programs of tf2 and jax take seconds to compile; more of jax is in
test_jax_devices.py."""


def run_there(backend: str, file: str, expression: str = "") -> subprocess.CompletedProcess[str]:
    own = os.environ | {stand_ins.VARIABLE: "stand-in", "PLUGRAD_TEST_BACKENDS": backend}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-k",
        expression,
    ]
    return subprocess.run(
        [*command, str(HERE / file)],
        cwd=HERE.parents[1],
        env=own,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", CHOSEN)
def test_learners_on_a_device_compute_and_find_mistakes(name: str) -> None:
    needs.backend(name)
    if name == "torch":
        needs.stand_in_of_torch()
    for expression in CHOSEN[name]:
        done = run_there(name, "stand_in_cases.py", expression)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        assert "passed" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("file", ["test_undo.py", "test_learner_api.py", "test_losses_on_backends.py"])
@pytest.mark.parametrize("name", CHOSEN)
def test_other_suites_pass_there(name: str, file: str) -> None:
    needs.backend(name)
    if name == "torch":
        needs.stand_in_of_torch()
    done = run_there(name, file)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
