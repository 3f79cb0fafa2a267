"""Five hundred hostile checkpoints and run directories: an error each, soon, in little memory, and no code is run."""

import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import malicious_checkpoints
import malicious_runs
import pytest
from tiny_runs import TINY, plugrad

from plugrad import load_policy
from plugrad.errors import ConfigError
from plugrad.learner.state.checkpoint import ENV_OBSERVATION_SPACE

HERE = Path(__file__).parent
CALLS, MEMORY, MEDIAN_CALLS = 4_000_000, 256 * 2**20, 30_000
CANARY = "from pathlib import Path\nPath('sang').touch()\ndef call(*_, **__): pass\nclass Class: pass\n"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good one of each; in `work`, where they are opened, lies a module that a stranger packed."""
    folder = tmp_path_factory.mktemp("good")
    for algorithm, settings in (("ppo", TINY), ("dqn", [each for each in TINY if "num_epochs" not in each])):
        out = f"--out={folder / algorithm}run"
        plugrad("train", algorithm, "--quiet", "--stop-timesteps=64", *settings, out, code=0)
        shutil.copytree(folder / f"{algorithm}run" / "checkpoints" / "last", folder / algorithm)
    (folder / "pporun").rename(folder / "run")
    (folder / "work").mkdir()
    (folder / "work" / "canary.py").write_text(CANARY)
    _learner(folder / "learner")
    return folder


def _learner(path: Path) -> None:
    from learning import ppo_batch, ppo_config

    learner = ppo_config(hiddens=(2,)).build_learner()
    learner.update(ppo_batch())
    learner.save_to_path(path)


def opened(folder: Path, number: int) -> list[dict[str, Any]]:
    command = [sys.executable, HERE / "watched_openings.py", folder, "11", str(number)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=1200, env={"PYTHONPATH": ".", "PATH": ""}
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == number, done.stderr[-3000:]
    return found


def test_a_policy_of_a_huge_observation_space_is_refused_before_it_is_made(
    good: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(good / "ppo", tmp_path / "huge"))
    space = malicious_runs.box(90_000, 90_000)
    malicious_checkpoints.seal(
        malicious_runs.newest(path), lambda fields: fields["metadata"].update({ENV_OBSERVATION_SPACE: space})
    )
    with pytest.raises(ConfigError, match="bounds of 324000000"):
        load_policy(path)


@pytest.mark.counts
@pytest.mark.parametrize("number", [500])
def test_five_hundred_hostile_files_are_an_error_each_after_few_calls_and_in_little_memory(
    good: Path, number: int
) -> None:
    found = opened(good, number)
    for each in found:
        about = f"{each['name']} at {each['door']}: {each['said'][-1500:]}"
        assert not each["ran"], about
        assert not each["said"].startswith("opened"), about
        assert "Traceback" not in each["said"], about
        assert each["calls"] < CALLS, f"{each['calls']} calls: {about}"
        assert each["bytes"] < MEMORY, f"{each['bytes'] / 2**20:.0f} MB: {about}"
    assert statistics.median(each["calls"] for each in found) < MEDIAN_CALLS
    assert len({each["name"] for each in found}) > number / 2
