"""Learners for every action space: equal on all backends, as for flat actions, refused where an algorithm cannot."""

from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from plugrad import DEFAULT_MODULE_ID, Columns
from plugrad.action_rows import action_dtype, action_shape
from plugrad.errors import BatchError, ConfigError
from plugrad.types import Array
from plugrad_bc import BCConfig
from plugrad_dqn import DQNConfig
from plugrad_offline import CQLConfig, IQLConfig, MARWILConfig
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig, TD3Config

P = DEFAULT_MODULE_ID
ROWS = 12
OBSERVATIONS = Box(-np.inf, np.inf, (3,), np.float32)
SPACES: dict[str, Space[Any]] = {
    "Discrete": Discrete(3, start=4),
    "MultiDiscrete": MultiDiscrete([2, 3]),
    "n-d MultiDiscrete": MultiDiscrete([[2, 3], [4, 2]], dtype=np.uint8, start=[[0, 1], [2, 9]]),
    "MultiBinary": MultiBinary(3),
    "n-d MultiBinary": MultiBinary([2, 2]),
    "Box": Box(-0.5, 2.0, (2,)),
    "n-d Box": Box(-0.5, 2.0, (2, 1, 2), np.float64),
    "number": Box(-0.5, 2.0, ()),
    "integers": Box(0, 3, (2,), np.uint8),
    "Tuple": Tuple([Discrete(3), Box(-0.5, 2.0, (2, 2), np.float64), Dict(on=MultiBinary(2))]),
    "Dict": Dict(turn=MultiDiscrete([3, 2], start=[1, 0]), buttons=MultiBinary(3)),
}
each_space = pytest.mark.parametrize("name", SPACES)


def learner_of(
    cls: type[Any], backend: str, space: Space[Any], compile: str = "none", **training: Any
) -> Any:
    """Of a few dozen parameters, with one minibatch a pass."""
    settings = {"lr": 0.01, "minibatch_size": None, "shuffle_batch_per_epoch": False, **training}
    return (
        cls()
        .framework(backend, compile=compile)
        .environment(observation_space=OBSERVATIONS, action_space=space)
        .rl_module(model_config={"fcnet_hiddens": [2]})
        .training(**settings)
        .debugging(seed=3)
        .build_learner()
    )


def batch_of(space: Space[Any]) -> dict[str, Array]:
    """Rows that the first policy left, and what other algorithms read."""
    rng = np.random.default_rng(7)
    obs, new_obs = rng.normal(size=(2, ROWS, 3)).astype(np.float32)
    names = (Columns.ADVANTAGES, Columns.VALUE_TARGETS, Columns.REWARDS)
    return {
        **learner_of(PPOConfig, "numpy", space).compute_actions(obs),
        Columns.OBS: obs,
        Columns.NEXT_OBS: new_obs,
        Columns.TERMINATEDS: rng.random(ROWS) < 0.3,
        **{name: rng.normal(size=ROWS).astype(np.float32) for name in names},
    }


def updated(cls: type[Any], backend: str, space: Space[Any], **training: Any) -> tuple[dict[str, Any], Array]:
    """Results and weights after an update."""
    learner = learner_of(cls, backend, space, **training)
    results = learner.update(batch_of(space))[P]
    return results, np.concatenate([np.ravel(each) for each in learner.get_weights()[P].values()])


@cache
def updated_in_numpy(name: str) -> tuple[dict[str, Any], Array]:
    return updated(PPOConfig, "numpy", SPACES[name], num_epochs=2)


@each_space
def test_an_update_of_ppo_is_that_of_numpy(name: str, backend: str) -> None:
    expected, expected_weights = updated_in_numpy(name)
    found, weights = updated(PPOConfig, backend, SPACES[name], num_epochs=2)
    assert found.keys() == expected.keys() >= {"total_loss", "policy_loss", "vf_loss", "entropy"}
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, rel=1e-5, abs=1e-5), key
    np.testing.assert_allclose(weights, expected_weights, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["number", "n-d Box", "Tuple"])
def test_updates_of_any_number_of_rows_are_taken(name: str, backend: str) -> None:
    """Also where a program of tf2 that has met several numbers leaves it open."""
    learner, batch = learner_of(PPOConfig, backend, SPACES[name], compile="auto"), batch_of(SPACES[name])
    for rows in range(5, 10):
        results = learner.update({column: values[:rows] for column, values in batch.items()})[P]
        assert np.isfinite(results["total_loss"])


@pytest.mark.parametrize("cls", [SACConfig, TD3Config, CQLConfig, IQLConfig, BCConfig, MARWILConfig])
def test_actions_of_several_axes_are_learned_as_flat_ones(cls: type[Any], backend: str) -> None:
    """Equal results and weights, to the last bits of float32: that the numbers have axes changes nothing."""
    found = []
    for space in (Box(-0.5, 2.0, (2, 2)), Box(-0.5, 2.0, (4,))):
        batch = batch_of(space)
        assert batch[Columns.ACTIONS].shape == (ROWS, *space.shape)
        learner = learner_of(cls, backend, space)
        results = learner.update(batch)[P]
        drawn = learner.compute_actions(batch[Columns.OBS])[Columns.ACTIONS]
        weights = learner.get_weights()[P].values()
        found.append([results["total_loss"], np.ravel(drawn), *map(np.ravel, weights)])
    for several, one in zip(*found, strict=True):
        np.testing.assert_allclose(several, one, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("cls", [BCConfig, MARWILConfig])
@pytest.mark.parametrize("name", ["MultiBinary", "n-d MultiDiscrete", "Tuple", "Dict"])
def test_recorded_actions_of_every_space_are_learned(cls: type[Any], name: str, backend: str) -> None:
    learner, batch = learner_of(cls, backend, SPACES[name]), batch_of(SPACES[name])
    losses = [learner.update(batch)[P]["policy_loss"] for _ in range(10)]
    assert losses[-1] < losses[0] - 0.01


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("cls", [DQNConfig, SACConfig, TD3Config, CQLConfig, IQLConfig])
def test_what_an_algorithm_cannot_do_is_one_sentence_before_anything_is_built(
    cls: type[Any], name: str
) -> None:
    boxes = {"Box", "n-d Box", "number"}
    takes = {DQNConfig: {"Discrete"}, SACConfig: {"Discrete", *boxes}}.get(cls, boxes)
    if name in takes:
        learner = learner_of(cls, "numpy", SPACES[name])
        actions = learner.compute_actions(np.zeros((2, 3), np.float32))[Columns.ACTIONS]
        assert (actions.shape, actions.dtype) == (
            (2, *action_shape(SPACES[name])),
            action_dtype(SPACES[name]),
        )
    else:
        with pytest.raises(ConfigError, match=r"(?i)needs? a") as refusal:
            learner_of(cls, "numpy", SPACES[name])
        assert str(SPACES[name]) in str(refusal.value)


@each_space
def test_policies_give_actions_of_the_space(name: str, backend: str) -> None:
    """One and a batch, drawn and most probable; alone as in a batch, but for the last digit of BLAS's products."""
    space = SPACES[name]
    policy = learner_of(PPOConfig, backend, space).get_policy()
    obs = np.random.default_rng(2).normal(size=(4, 3)).astype(np.float32)
    many = gym.vector.utils.batch_space(space, 4)
    for deterministic in (True, False):
        actions, _ = policy.predict(obs, deterministic=deterministic)
        each = list(gym.vector.utils.iterate(many, actions))
        assert len(each) == 4
        assert all(space.contains(action) for action in each)
        one, _ = policy.predict(obs[0], deterministic=deterministic)
        assert space.contains(one)
        if deterministic:
            numbers, others = gym.spaces.flatten(space, one), gym.spaces.flatten(space, each[0])
            np.testing.assert_allclose(numbers, others, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "place", "value", "words"),
    [
        ("MultiBinary", (3, 0), 2, r"0-based actions of MultiBinary\(3\), found values from 0 to 2"),
        ("Tuple", (0, 0), 3.0, r"0-based actions of Discrete\(3\) at \[0\]"),
        ("Tuple", (0, 6), 0.5, r"0-based actions of MultiBinary\(2\) at \[2\]\['on'\]"),
        ("Dict", (1, 1), 2, r"actions of MultiDiscrete.* at \['turn'\]"),
    ],
)
def test_actions_that_are_none_are_refused_and_change_nothing(
    name: str, place: Any, value: Any, words: str
) -> None:
    learner, batch = learner_of(PPOConfig, "numpy", SPACES[name]), batch_of(SPACES[name])
    batch[Columns.ACTIONS][place] = value
    before = learner.get_weights()[P]
    with pytest.raises(BatchError, match=words):
        learner.update(batch)
    with pytest.raises(BatchError, match="'actions': expected shape"):
        learner.update({**batch, Columns.ACTIONS: batch[Columns.ACTIONS][:, :-1]})
    for key, weights in learner.get_weights()[P].items():
        np.testing.assert_array_equal(weights, before[key])
