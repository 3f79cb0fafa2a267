"""Modules that come and go between compiled updates: the module that stays moves as if nothing had happened."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from learning import digest, ppo_batch, ppo_config, with_modules

from plugrad import Learner, RLModuleSpec

pytestmark = pytest.mark.cross_product

MODES = ["none", "complete_update"]
SPEC = RLModuleSpec(
    observation_space=gym.spaces.Box(-1.0, 1.0, (2,)),
    action_space=gym.spaces.Discrete(3),
    model_config={"fcnet_hiddens": [8]},
)


def built(backend: str, mode: str) -> Learner:
    training = {"minibatch_size": 16, "num_epochs": 2, "shuffle_batch_per_epoch": True, "grad_clip": 0.5}
    config = ppo_config(backend, **training).framework(backend, compile=mode, device="cpu")
    return with_modules(config, "a").build_learner()


def batch(*module_ids: str, seed: int) -> dict[str, Any]:
    sizes = {"a": {}, "b": {"inputs": 2, "actions": 3}}
    return {each: ppo_batch(32, seed, **sizes[each]) for each in module_ids}


def part(learner: Learner, module_id: str) -> dict[str, Any]:
    """Weights, optimizer slots, coefficients and random streams of one module."""
    state = learner.get_state()
    return digest(
        {
            "weights": state["rl_module"][module_id],
            "optimizer": state["optimizer"][f"{module_id}_default_optimizer"],
            "coefficients": state["coefficients"][module_id],
            "streams": {
                name: each
                for name, each in state["streams"]["generators"].items()
                if name.startswith(f"{module_id}/")
            },
        }
    )


@pytest.mark.parametrize("mode", MODES)
def test_update_add_update_remove_update(backend: str, mode: str) -> None:
    plain, changed = built(backend, mode), built(backend, mode)
    plain.update(batch("a", seed=0))
    changed.update(batch("a", seed=0))
    changed.add_module(module_id="b", module_spec=SPEC, config_overrides={"lr": 0.1})
    assert part(changed, "a") == part(plain, "a")

    plain.update(batch("a", seed=1))
    changed.update(batch("a", seed=1))
    assert part(changed, "a") == part(plain, "a")

    first = part(changed, "b")
    plain.update(batch("a", seed=2))
    results = changed.update(batch("a", "b", seed=2))
    assert np.isfinite(results["b"]["total_loss"])
    assert part(changed, "b") != first
    assert changed.update_mode.startswith(mode)
    assert part(changed, "a") == part(plain, "a")

    before = part(changed, "a")
    changed.remove_module("b")
    assert part(changed, "a") == before
    plain.update(batch("a", seed=3))
    changed.update(batch("a", seed=3))
    assert part(changed, "a") != before
    assert part(changed, "a") == part(plain, "a")


@pytest.mark.parametrize("mode", MODES)
def test_a_module_added_again_is_trained_and_not_the_one_before_it(backend: str, mode: str) -> None:
    once, again = built(backend, mode), built(backend, mode)
    for learner in (once, again):
        learner.add_module(module_id="b", module_spec=SPEC)
    again.update(batch("a", "b", seed=0))
    again.remove_module("b")
    again.add_module(module_id="b", module_spec=SPEC)
    assert part(again, "b") == part(once, "b")
    for learner in (once, again):
        learner.update(batch("b", seed=1))
    assert part(again, "b") == part(once, "b")


class ReadsTheOther(Learner):
    """Module `a` learns towards the values of `b`, if there is a `b`: its program depends on both."""

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Any, fwd_out: Any) -> Any:
        target = batch["value_targets"]
        if "b" in self.module:
            target = self.ops.stop_gradient(self.module["b"].compute_values({"obs": batch["obs"]}))
        return self.ops.mean(self.ops.square(fwd_out["vf_preds"] - target))


@pytest.mark.parametrize("mode", MODES)
def test_a_program_never_reads_a_module_that_is_gone(backend: str, mode: str) -> None:
    losses = []
    config = with_modules(built(backend, mode).config, "a").learners(learner_class=ReadsTheOther)
    learner = config.build_learner()
    state = learner.get_state()
    for spec in (None, {"fcnet_hiddens": [4]}, {"fcnet_hiddens": [5]}):
        if spec is not None:
            learner.add_module(module_id="b", module_spec=RLModuleSpec(model_config=spec))
        learner.set_weights(state["rl_module"])
        losses.append(learner.update(batch("a", seed=0), num_epochs=1, minibatch_size=32)["a"]["total_loss"])
        if spec is not None:
            learner.remove_module("b")
    learner.set_weights(state["rl_module"])
    last = learner.update(batch("a", seed=0), num_epochs=1, minibatch_size=32)["a"]["total_loss"]
    assert len({round(loss, 4) for loss in losses}) == 3
    assert last == pytest.approx(losses[0], rel=1e-5)
