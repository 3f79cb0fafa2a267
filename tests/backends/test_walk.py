"""One batch walks straight: an update calls what ARCHITECTURE.md names, through few files, in few calls."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import needs
import numpy as np
from gymnasium.spaces import Box, Discrete

from plugrad_ppo import PPOConfig

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
WALK = re.findall(r"\[`([\w.]+)`\]\((?:core|backends|plugins)/([\w/]+\.py)#L\d+\)", PAGE)
ROWS = 8


def test_an_update_calls_what_the_page_names_in_its_order() -> None:
    needs.backend("torch")
    config = PPOConfig().framework("torch", compile="none").debugging(seed=0)
    config = config.environment(observation_space=Box(-1.0, 1.0, (3,)), action_space=Discrete(2))
    learner = config.training(minibatch_size=None, num_epochs=1).build_learner()
    rng = np.random.default_rng(0)
    rows = {"obs": rng.uniform(-1.0, 1.0, (ROWS, 3)).astype(np.float32)}
    rows |= {"actions": rng.integers(0, 2, ROWS), "action_logp": np.full(ROWS, np.log(0.5), np.float32)}
    rows |= {"action_dist_inputs": np.zeros((ROWS, 2), np.float32)}
    rows |= {name: rng.normal(size=ROWS).astype(np.float32) for name in ("advantages", "value_targets")}
    called: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            called.append((frame.f_code.co_qualname, frame.f_code.co_filename))

    sys.setprofile(note)
    try:
        learner.update(rows)
    finally:
        sys.setprofile(None)
    assert len(WALK) > 10
    at = -1
    for name, path in WALK:
        later = [n for n, (function, file) in enumerate(called) if function == name and file.endswith(path)]
        assert later, f"{name} of {path} is not called"
        assert (at := next((n for n in later if n > at), -1)) >= 0, (
            f"{name} of {path} is called before the one above"
        )


def test_walks_pass_few_files_in_few_calls_as_the_benchmark_counts_them() -> None:
    needs.backend("torch")
    command = [sys.executable, str(ROOT / "benchmarks" / "walk.py"), "--trace", str(ROOT)]
    environment = os.environ | {"PLUGRAD_DEBUG": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    update, files = found["walks"]["update"], {walk: each["files"] for walk, each in found["walks"].items()}
    assert update["depth"] <= 24
    assert update["calls"] <= 550
    assert files["update"] <= 40
    assert files["config to learner"] <= 60
    assert files["save"] <= 17
    assert files["load"] <= 24
    assert (
        found["hooks"]["most"] <= 2
    )  # `apply_gradients`, which counts versions of the weights; others have one frame
    assert found["hooks"]["mean"] < 1.1
    assert max(found["errors"].values()) <= 6  # frames of ours above a user's line
