"""What is wrong with an algorithm, `algorithm_suite` says: that of docs/write-an-algorithm.md with a fault fails it."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

SOUND = (Path(__file__).parents[1] / "author/plugrad-reinforce/plugrad_reinforce.py").read_text()
CONFTEST = """
import os, pytest
pytest_plugins = ["plugrad.testing.fixtures"]
@pytest.fixture(scope="session")
def backend():
    return os.environ["BACKEND"]
@pytest.fixture(scope="session", params=os.environ["ALGORITHMS"].split())
def algorithm(request):
    return request.param
"""


@dataclass(frozen=True)
class Fault:
    """A change of a sound algorithm, and the sentence that must name it."""

    old: str
    new: str
    words: str


LOSS = 'return parts["policy_loss"]'
FAULTS = {
    "not_finite": Fault(
        "ops.square(advantages)",
        "ops.sqrt(-ops.square(advantages))",
        r"the loss of module 'default_policy' is nan on '{backend}': it must be finite",
    ),
    "no_actions": Fault(
        "policy.logp(batch[Columns.ACTIONS])",
        "policy.entropy()",
        "column 'actions' of module 'default_policy' is never read",
    ),
    "no_returns": Fault(
        "batch[Columns.RETURNS_TO_GO] - fwd",
        "1.0 - fwd",
        "column 'returns_to_go' of module 'default_policy' is never read",
    ),
    "idle_returns": Fault(
        "batch[Columns.RETURNS_TO_GO] - fwd",
        "0.0 * batch[Columns.RETURNS_TO_GO] - fwd",
        "column 'returns_to_go' of module 'default_policy' is read and changes nothing",
    ),
    "no_gradient": Fault(
        LOSS + " + config.vf_loss_coeff * parts[\"vf_loss\"] - bonus",
        "return ops.stop_gradient(parts[\"policy_loss\"] - bonus)",
        "no gradient reaches any weight: is all of it stopped?",
    ),
    "differs": Fault(
        LOSS,
        'return (1.0 if learner.config.backend == "numpy" else 1.1) * parts["policy_loss"]',
        r"the loss of module 'default_policy' is \S+ on '{backend}' and \S+ on the reference",
    ),
    "no_round_trip": Fault(
        "\n\n@hookimpl\ndef get_config_class",
        "\n    def __post_init__(self):\n"
        "        super().__post_init__()\n"
        '        object.__setattr__(self, "vf_loss_coeff", 2 * self.vf_loss_coeff)\n'
        "\n\n@hookimpl\ndef get_config_class",
        "settings do not come back from a dict as they were: vf_loss_coeff went as 1.0, came as 2.0",
    ),
}  # fmt: skip


FROZEN = (LOSS, 'return (1.0 + learner.counters.get("weights_seq_no", 0)) * parts["policy_loss"]')
"""A Python number that changes between updates."""


@pytest.fixture(scope="module")
def said(backend: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the suite prints of the sound one and of all the others."""
    site = tmp_path_factory.mktemp("faults")
    info = site / "plugrad_faults-1.0.dist-info"
    info.mkdir()
    changes = {"sound": ("", ""), "frozen": FROZEN} | {
        name: (each.old, each.new) for name, each in FAULTS.items()
    }
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugrad-faults\nVersion: 1.0\n")
    points = [f"{name} = of_{name}" for name in changes]
    (info / "entry_points.txt").write_text("\n".join(["[plugrad.algorithms]", *points]))
    for name, (old, new) in changes.items():
        assert not old or SOUND.count(old) == 1, f"{old!r} is not in the algorithm any more"
        (site / f"of_{name}.py").write_text(SOUND.replace(old, new) if old else SOUND)
    (site / "tests").mkdir()
    (site / "tests/conftest.py").write_text(CONFTEST)
    (site / "tests/test_faults.py").write_text("from plugrad.testing.algorithm_suite import *\n")
    return run_suite(site, backend, list(changes))


def run_suite(site: Path, backend: str, names: list[str]) -> str:
    """Of one step, but for the fault that shows itself in the second update."""
    options = (
        "-q",
        "-rfE",
        "-p",
        "no:cacheprovider",
        "--tb=no",
        "--rootdir=.",
        "-k",
        "settings or gradients or depends or (updates and none and frozen)",
    )
    more = {"PYTHONPATH": str(site), "COLUMNS": "1000", "BACKEND": backend, "ALGORITHMS": " ".join(names)}
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(
        command, cwd=site / "tests", env={**os.environ, **more}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def is_named(said: str, name: str, words: str) -> bool:
    return bool(re.search(rf"^FAILED \S+\[{name}(-\w+)?\] - .*{words}", said, flags=re.MULTILINE))


@pytest.mark.parametrize("name", FAULTS)
def test_the_suite_fails_and_says_why(said: str, backend: str, name: str) -> None:
    assert is_named(said, name, FAULTS[name].words.replace("{backend}", backend)), said


def test_a_number_that_a_program_freezes_is_found_where_losses_are_traced(said: str, backend: str) -> None:
    """Always on tf2; torch's mode "none" is eager, and right."""
    words = r"update 2, .*; before, they were equal: does a Python number change, which a traced loss sees only once\?"
    assert is_named(said, "frozen", words) == (backend == "tf2"), said


def test_the_sound_one_passes(said: str) -> None:
    assert "[sound" not in said
    assert "ERROR" not in said
