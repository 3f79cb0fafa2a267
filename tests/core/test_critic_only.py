"""What only critics read: a policy acts, is saved and loaded without it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

import plugrad
from plugrad import Columns, numpy_ops
from plugrad.errors import BatchError, ConfigError
from plugrad.learner.learner import Learner
from plugrad.testing.numpy_module import ArrayVariable, NumpyRLModule
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig, TD3Config

N = 6
SPACE = Dict(
    {
        "after": Box(-1.0, 1.0, (2,), np.float32),
        "friction": Dict({"floor": Box(0.0, 1.0, (1,), np.float32), "kind": Discrete(3)}),
        "joints": Box(-1.0, 1.0, (3,), np.float32),
        "room": Discrete(2),
    }
)
"""The part of the critics is in the middle of a row."""
KEYS = ("after", "joints", "room")
CONFIGS: dict[str, Any] = {
    "ppo": PPOConfig(),
    "ppo with an lstm": PPOConfig().rl_module(model_config={"use_lstm": True, "lstm_cell_size": 3}),
    "ppo without layers": PPOConfig().rl_module(model_config={"fcnet_hiddens": []}),
    "sac": SACConfig(),
    "td3": TD3Config(),
}


def learner(config: Any, *, space: Any = SPACE, actions: Any = None, **model: Any) -> Learner:
    actions = Box(-50.0, 50.0, (2,), np.float32) if actions is None else actions
    settings = {"fcnet_hiddens": [4], "critic_only": ["friction"], **config.model_config, **model}
    config = config.framework("numpy").environment(observation_space=space, action_space=actions)
    built: Learner = config.rl_module(model_config=settings).debugging(seed=0).build_learner()
    weights = built.get_weights()
    rng = np.random.default_rng(0)
    for module in weights.values():
        for name in module:
            module[name] = rng.standard_normal(module[name].shape).astype(np.float32)
    built.set_weights(weights)
    return built


def observations() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        "after": rng.uniform(-1, 1, (N, 2)).astype(np.float32),
        "friction": {"floor": rng.uniform(0, 1, (N, 1)).astype(np.float32), "kind": rng.integers(0, 3, N)},
        "joints": rng.uniform(-1, 1, (N, 3)).astype(np.float32),
        "room": rng.integers(0, 2, N),
    }


def without(some: dict[str, Any]) -> dict[str, Any]:
    return {key: some[key] for key in KEYS}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_policy_acts_without_what_only_critics_read_also_from_a_file(name: str, tmp_path: Path) -> None:
    trained, some = learner(CONFIGS[name]), observations()
    policy = trained.get_policy()
    assert tuple(policy.observation_space) == KEYS
    actions, state = policy.predict(without(some))
    assert np.ptp(actions, axis=0).min() > 1e-3  # what is left of the observation counts
    whole = trained.compute_actions(some, explore=False)[Columns.ACTIONS]
    np.testing.assert_array_equal(
        actions, np.clip(whole, -50.0, 50.0)
    )  # as in training, where all keys are there
    np.testing.assert_array_equal(policy.predict(some)[0], actions)
    one, _ = policy.predict({key: each[2] for key, each in without(some).items()})
    np.testing.assert_array_equal(one, policy.predict({k: v[2:3] for k, v in without(some).items()})[0][0])
    policy.save(tmp_path / "policy.safetensors")
    loaded = plugrad.load_policy(tmp_path / "policy.safetensors")
    assert loaded.observation_space == policy.observation_space
    np.testing.assert_array_equal(loaded.predict(without(some))[0], actions)
    assert (state is None) == ("lstm" not in name)


def test_nan_in_what_only_critics_read_does_not_stop_a_policy_and_in_what_it_reads_does() -> None:
    policy, some = learner(PPOConfig()).get_policy(), observations()
    expected = policy.predict(some)[0]
    some["friction"]["floor"][:] = np.nan
    np.testing.assert_array_equal(policy.predict(some)[0], expected)
    some["joints"][0, 0] = np.nan
    with pytest.raises(BatchError, match="NaN"):
        policy.predict(some)


def test_a_policy_still_refuses_other_keys_and_missing_ones() -> None:
    policy, some = learner(PPOConfig()).get_policy(), without(observations())
    with pytest.raises(BatchError, match="speed"):
        policy.predict({**some, "speed": some["joints"]})
    del some["joints"]
    with pytest.raises(BatchError, match="joints"):
        policy.predict(some)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_outputs_of_a_policy_do_not_depend_on_it_and_values_do(name: str) -> None:
    trained = learner(CONFIGS[name])
    module = trained.module["default_policy"]
    rng = np.random.default_rng(2)
    rows = rng.uniform(-1, 1, (N, 11)).astype(np.float32)
    other = rows.copy()
    other[:, 2:6] += 0.5  # after, then friction
    given: dict[str, Any] = {Columns.ACTIONS: rng.uniform(-1, 1, (N, 2)).astype(np.float32)}
    if initial := module.network.initial_state():
        given[Columns.STATE_IN] = {
            key: np.zeros((N, *each.shape), np.float32) for key, each in initial.items()
        }
        rows, other = rows[:, None], other[:, None]
    one, two = (
        module.network.forward(numpy_ops, module._acting_weights(), {"obs": each, **given}, value=True)
        for each in (rows, other)
    )
    inputs, values = Columns.ACTION_DIST_INPUTS, next(c for c in ("vf_preds", "qf_preds") if c in one)
    np.testing.assert_array_equal(one[inputs], two[inputs])
    assert np.abs(one[values] - two[values]).max() > 1e-3


@pytest.mark.parametrize(
    ("config", "settings", "words"),
    [
        (PPOConfig(), {"critic_only": ["fricton"]}, "no key 'fricton'.*Did you mean 'friction'"),
        (PPOConfig(), {"critic_only": list(SPACE)}, "would read nothing"),
        (PPOConfig(), {"vf_share_layers": True}, "set vf_share_layers=False"),
        (PPOConfig(), {"space": Box(-1.0, 1.0, (3,))}, "keys of a Dict observation"),
        (DQNConfig(), {"actions": Discrete(2)}, "no policy beside its critics"),
        (SACConfig(), {"critic_only": "friction"}, "a list of keys"),
    ],
    ids=["typo", "all", "shared", "box", "dqn", "text"],
)
def test_what_cannot_be_left_out_is_refused_when_a_learner_is_built(
    config: Any, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        learner(config, **settings)


def test_statistics_of_normalisation_do_not_need_it() -> None:
    from exported_policies import policy

    trained = policy(
        SPACE, config=PPOConfig().env_runners(normalize_observations=True), critic_only=["friction"]
    )
    some = observations()
    np.testing.assert_array_equal(trained.predict(without(some))[0], trained.predict(some)[0])


class Own(NumpyRLModule):
    """A user's own module; `reads` decides whether its policy reads what its value does."""

    reads = ("joints",)

    def setup(self) -> None:
        rng = np.random.default_rng(0)
        self.pi = ArrayVariable(rng.standard_normal((3, 4)).astype(np.float32))
        self.vf = ArrayVariable(np.ones((1,), np.float32))

    def _forward(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        obs = batch[Columns.OBS]
        seen = obs["joints"] + sum(obs["friction"]["floor"] for key in self.reads if key == "friction")
        value = obs["friction"]["floor"][:, 0] * self.vf.read()
        return {Columns.ACTION_DIST_INPUTS: seen @ self.pi.read(), Columns.VF_PREDS: value}


class OwnOfAll(Own):
    """Its policy reads all."""

    reads = ("joints", "friction")


def own(module_class: Any) -> Learner:
    config = PPOConfig().framework("numpy")
    config = config.environment(observation_space=SPACE, action_space=Box(-50.0, 50.0, (2,), np.float32))
    spec = plugrad.RLModuleSpec(module_class=module_class)
    settings = {"critic_only": ["friction"]}
    built: Learner = config.rl_module(rl_module_spec=spec, model_config=settings).build_learner()
    return built


def test_a_module_of_your_own_acts_without_it_also_from_a_file(tmp_path: Path) -> None:
    trained, some = own(Own), observations()
    policy = trained.get_policy()
    actions, _ = policy.predict(without(some))
    whole = trained.compute_actions(some, explore=False)[Columns.ACTIONS]
    np.testing.assert_array_equal(actions, whole.astype(np.float32))
    policy.save(tmp_path / "policy.safetensors")
    module = Own(observation_space=SPACE, action_space=policy.action_space)
    loaded = plugrad.load_policy(tmp_path / "policy.safetensors", module=module)
    assert tuple(loaded.observation_space) == KEYS
    np.testing.assert_array_equal(loaded.predict(without(some))[0], actions)


def test_a_module_of_your_own_whose_policy_reads_it_is_refused() -> None:
    trained = own(OwnOfAll)
    with pytest.raises(ConfigError, match=r"\(OwnOfAll\).*change with 'friction'.*only critics read"):
        trained.get_policy()
