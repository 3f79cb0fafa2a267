"""A learner that goes on from a checkpoint, elsewhere or rolled back, equals one that never stopped, to the bit."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from learning import digest, ppo_batch, ppo_config, with_modules

from plugrad import Learner, RLModuleSpec
from plugrad.checkpoint import load_checkpoint

FIRST = {"none": 0, "complete_update": 1}
"""By mode, the number of the first update: compiled, the second module comes just before it, for one program less."""
SAVED, END = 3, 8


def two_modules(backend: str, mode: str) -> Learner:
    """It has one yet, with a schedule, minibatches in random order and a KL coefficient that adapts."""
    training = {"minibatch_size": 8, "num_epochs": 2, "shuffle_batch_per_epoch": True, "use_kl_loss": True}
    config = ppo_config(backend, lr=[[0, 0.01], [24 * END, 0.001]], **training)
    return with_modules(config.framework(backend, compile=mode, device="cpu"), "a").build_learner()


def learn(learner: Learner, first: int, stop: int) -> None:
    """Updates number `first` to `stop`, and an action of each module after each; the second module comes on the way."""
    for n in range(first, stop):
        if n == 1:
            spec = RLModuleSpec(model_config={"fcnet_hiddens": [3]})
            learner.add_module(module_id="b", module_spec=spec, config_overrides={"lr": 0.02})
        batch = {module_id: ppo_batch(24, seed=n) for module_id in learner.module}
        learner.update(batch, timesteps={"num_env_steps_sampled_lifetime": 24 * n})
        for module_id in learner.module:
            learner.compute_actions(ppo_batch(2)["obs"], module_id=module_id)


def state_at(path: Path) -> dict[str, Any]:
    """All arrays, byte for byte, and all values of the newest save."""
    return digest(load_checkpoint(path).state)


GO_ON = """
import sys
sys.path[:0] = sys.argv[1:3]
from test_resume import END, SAVED, learn
from plugrad import Learner
for path in sys.argv[3:]:
    learner = Learner.from_checkpoint(path)
    learn(learner, SAVED, END)
    learner.save_to_path(path + "-resumed")
"""


def go_on_elsewhere(*paths: Path) -> None:
    here = Path(__file__).parent
    subprocess.run(
        [sys.executable, "-c", GO_ON, str(here), str(here.parent), *map(str, paths)],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        check=True,
    )


def test_going_on_elsewhere_and_rolling_back_lead_where_the_straight_run_led(
    backend: str, tmp_path: Path
) -> None:
    straight = {}
    for mode, first in FIRST.items():
        learner = two_modules(backend, mode)
        learn(learner, first, SAVED)
        learner.save_to_path(tmp_path / mode)
        learn(learner, SAVED, END)
        assert learner.update_mode.startswith(mode)
        straight[mode] = digest(learner.get_state())
        learner.restore_from_path(tmp_path / mode)
        assert digest(learner.get_state()) == state_at(tmp_path / mode) != straight[mode]
        learn(learner, SAVED, END)
        assert digest(learner.get_state()) == straight[mode]
    go_on_elsewhere(*(tmp_path / mode for mode in FIRST))
    assert {mode: state_at(tmp_path / f"{mode}-resumed") for mode in FIRST} == straight
