"""A module with what docs/module-contracts.md says, and no more, learns as the built-in one does."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box

from plugrad import DEFAULT_MODULE_ID, Columns, RLModuleSpec
from plugrad.distributions import LOG_STD_BOUNDS, squashed_gaussian_class
from plugrad.errors import ConfigError, MissingColumnError
from plugrad.learner.learner import Learner
from plugrad.testing.numpy_module import ArrayVariable, NumpyRLModule
from plugrad_sac import SACConfig, TD3Config

OBSERVATIONS, ACTIONS = Box(-1.0, 1.0, (3,), np.float32), Box(-1.0, 1.0, (2,), np.float32)
B = 6
WEIGHTS = {
    "pi": np.random.default_rng(0).normal(0.0, 0.5, (3, 4)).astype(np.float32),
    "qf": np.random.default_rng(1).normal(0.0, 0.5, (2, 5, 1)).astype(np.float32),
    "log_alpha": np.float32(-1.0),
}


class OwnSAC(NumpyRLModule):
    """Linear policy and critics."""

    def setup(self) -> None:
        for name, value in WEIGHTS.items():
            setattr(self, name, ArrayVariable(np.array(value)))

    def get_train_action_dist_cls(self) -> Any:
        return squashed_gaussian_class(self.action_space, self.ops)

    def _forward(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        ops, obs, critics = self.ops, batch[Columns.OBS], self.qf.read()
        if "policy_actions" in batch:
            return {"qf_preds": self.values(ops.stop_gradient(critics), obs, batch["policy_actions"])}
        means, log_stds = ops.split(ops.matmul(obs, self.pi.read()), (2, 2), -1)
        log_stds = ops.clip(log_stds, *LOG_STD_BOUNDS)
        columns = {Columns.ACTION_DIST_INPUTS: ops.concat([means, log_stds], -1)}
        if Columns.ACTIONS in batch:
            columns["qf_preds"] = self.values(critics, obs, batch[Columns.ACTIONS])
            columns["log_alpha"] = self.log_alpha.read()
        return columns

    def values(self, critics: Any, obs: Any, actions: Any) -> Any:
        x = self.ops.concat([obs, actions], -1)
        return self.ops.matmul(self.ops.stack([x, x]), critics)[..., 0]


def learner(spec: RLModuleSpec, config_class: Any = SACConfig) -> Learner:
    config = config_class().framework("numpy").debugging(seed=0)
    config = config.environment(observation_space=OBSERVATIONS, action_space=ACTIONS)
    config = config.training(minibatch_size=B, train_batch_size=B, lr=0.01)
    built: Learner = config.rl_module(rl_module_spec=spec).build_learner()
    return built


def batch() -> dict[str, Any]:
    rng = np.random.default_rng(2)
    obs, new_obs = rng.uniform(-1, 1, (2, B, 3)).astype(np.float32)
    return {
        "obs": obs,
        "new_obs": new_obs,
        "actions": rng.uniform(-0.9, 0.9, (B, 2)).astype(np.float32),
        "rewards": rng.standard_normal(B).astype(np.float32),
        "terminateds": np.arange(B) == 0,
    }


def test_a_module_of_sacs_contract_learns_as_the_built_in_one_does() -> None:
    own = learner(RLModuleSpec(module_class=OwnSAC))
    built_in = learner(RLModuleSpec(model_config={"fcnet_hiddens": []}))
    names = {"pi.out.weight": "pi", "qf.0.weight": "qf", "log_alpha": "log_alpha"}
    weights = built_in.get_weights()[DEFAULT_MODULE_ID]
    weights = {name: WEIGHTS[names[name]] if name in names else 0.0 * each for name, each in weights.items()}
    built_in.set_weights({DEFAULT_MODULE_ID: weights})
    assert set(own.registered_optimizers) == set(built_in.registered_optimizers)
    found, expected = (each.update(batch())[DEFAULT_MODULE_ID] for each in (own, built_in))
    for name in ("qf_loss", "policy_loss", "alpha_loss", "qf_mean"):
        assert found[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-6), name
    after, theirs = (each.get_weights()[DEFAULT_MODULE_ID] for each in (own, built_in))
    for name, mine in names.items():
        np.testing.assert_allclose(after[mine], theirs[name], atol=1e-4)
        assert np.abs(after[mine] - WEIGHTS[mine]).max() > 1e-3


class WithoutValues(OwnSAC):
    """Has the names of the contract, and not its outputs."""

    def _forward(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        columns = super()._forward(batch, **kwargs)
        columns.pop("qf_preds", None)
        return columns


class WithoutCritics(NumpyRLModule):
    """A policy and a value, as PPO asks for."""

    def setup(self) -> None:
        self.policy, self.value = (ArrayVariable(np.zeros((3, each), np.float32)) for each in (4, 1))


@pytest.mark.parametrize("config", [SACConfig, TD3Config])
def test_a_module_without_the_names_of_an_algorithm_is_refused_with_the_page_that_has_them(
    config: Any,
) -> None:
    with pytest.raises(ConfigError, match=r"\(WithoutCritics\).*'pi'.*policy.*docs/module-contracts\.md"):
        learner(RLModuleSpec(module_class=WithoutCritics), config)


def test_a_module_without_the_outputs_of_an_algorithm_is_refused_with_the_page_that_has_them() -> None:
    lacking = learner(RLModuleSpec(module_class=WithoutValues))
    with pytest.raises(MissingColumnError, match=r"no 'qf_preds'.*docs/module-contracts\.md"):
        lacking.update(batch())
