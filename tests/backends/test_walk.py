"""The walk of one batch on ARCHITECTURE.md: an update calls what the page names, in its order."""

import re
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
