"""What only a GPU shows: steps as CUDA graphs, and models of users' own on the learner's device."""

import copy
from collections.abc import Iterator
from typing import Any

import actor_critics
import gymnasium as gym
import needs
import numpy as np
import pytest
from learning import ppo_batch, ppo_config

from plugrad import Learner, RLModuleSpec
from plugrad.columns import Columns
from plugrad_bc import BCConfig

SPACES = {"observation_space": gym.spaces.Box(-1.0, 1.0, (3,)), "action_space": gym.spaces.Discrete(2)}
CAPTURED = "none: recorded operations of torch, replayed as a CUDA graph"


@pytest.fixture(autouse=True)
def one_gpu() -> None:
    needs.gpus(1)


def built(mode: str, **spec: Any) -> Learner:
    config = BCConfig().environment(**SPACES).framework("torch", compile=mode, device="cuda:0")
    config = config.debugging(seed=0).training(minibatch_size=4, num_epochs=2, lr=1e-2)
    if not spec:
        spec = {"model_config": {"fcnet_hiddens": [8]}}
    learner = Learner(config=config.rl_module(rl_module_spec=RLModuleSpec(**spec)))
    learner.build()
    return learner


def batches(*sizes: int) -> Iterator[dict[str, Any]]:
    for n, rows in enumerate(sizes):
        rng = np.random.default_rng(n)
        obs = rng.normal(size=(rows, 3)).astype(np.float32)
        yield {"obs": obs, "actions": rng.integers(0, 2, rows)}


def weights(learner: Learner) -> Any:
    return np.concatenate([np.ravel(each) for each in learner.get_weights()["default_policy"].values()])


def own_module() -> Any:
    import torch

    from plugrad_torch import TorchRLModule

    class Own(TorchRLModule):
        def setup(self) -> None:
            torch.manual_seed(0)
            self.pi = torch.nn.Sequential(
                torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)
            )

        def _forward(self, batch: Any, **kwargs: Any) -> Any:
            shift = self.ops.zeros((2,), "float32")
            return {Columns.ACTION_DIST_INPUTS: self.pi(batch[Columns.OBS]) + shift}

    return Own


@pytest.mark.parametrize("mode", ["auto", "complete_update"])
def test_captured_steps_give_the_numbers_of_eager_ones_for_batches_of_every_size(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugrad_torch.auto_update.STEPS_BEFORE_RECORDING", 4)
    captured, eager = built(mode), built("none")
    for batch in batches(8, 8, 12, 9, 40, 8):
        captured.update(batch)
        eager.update(batch)
        np.testing.assert_allclose(weights(captured), weights(eager), rtol=0, atol=1e-5)
    assert mode != "auto" or captured.update_mode.startswith(CAPTURED)
    assert mode == "auto" or captured.update_mode.startswith("complete_update")


@pytest.mark.parametrize("kind", ["ppo", "sac", "sac discrete", "td3"])
def test_steps_of_every_kind_are_captured(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugrad_torch.auto_update.STEPS_BEFORE_RECORDING", 1)
    make = ppo_config("torch", minibatch_size=8) if kind == "ppo" else actor_critics.tiny(kind, "torch")
    captured, eager = (
        make.copy().framework("torch", compile=mode, device="cuda:0").build_learner()
        for mode in ("auto", "none")
    )
    for seed in range(4):
        batch = ppo_batch(16, seed=seed) if kind == "ppo" else actor_critics.transitions(kind, seed=seed)
        for learner in (captured, eager):
            learner.update(batch)
    assert captured.update_mode.startswith(CAPTURED), captured.update_mode
    np.testing.assert_allclose(weights(captured), weights(eager), rtol=0, atol=1e-5)


def test_a_module_of_the_users_own_trains_acts_and_is_copied_on_the_device() -> None:
    learner = built("auto", module_class=own_module())
    module: Any = learner.module["default_policy"]
    assert {each.device.type for each in (*module.parameters(), *module.buffers())} == {"cuda"}
    before = weights(learner)
    for batch in batches(8, 8):
        learner.update(batch)
    assert np.any(weights(learner) != before)
    assert learner.compute_actions(batch["obs"])["actions"].shape == (8,)
    assert copy.deepcopy(module).ops is module.ops


def test_a_model_that_is_added_later_is_on_the_device_too() -> None:
    learner = built("none")
    learner.add_module(module_id="more", module_spec=RLModuleSpec(module_class=own_module(), **SPACES))
    module: Any = learner.module["more"]
    assert {each.device.type for each in module.parameters()} == {"cuda"}
