"""Observations that a built-in network would misread are refused: scaled uint8, and choices that the space lacks."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from learning import digest, quick_mode

from plugrad import Columns, Learner, RLModuleSpec
from plugrad.errors import BatchError
from plugrad.rl_module.random_module import RandomRLModule
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig

IMAGES = gym.spaces.Box(0, 255, (10, 10, 1), np.uint8)
BYTES = np.random.default_rng(0).integers(0, 256, (6, 10, 10, 1)).astype(np.uint8)
WRONG = {
    "scaled images": (IMAGES, BYTES / np.float32(255.0), "uint8 holds.*scale again"),
    "NaN in images": (IMAGES, np.full((6, 10, 10, 1), np.nan, np.float32), "uint8 holds"),
    "scaled bytes": (gym.spaces.Box(0, 9, (2,), np.uint8), np.full((6, 2), 0.5), "uint8 holds"),
    "too large a choice": (gym.spaces.Discrete(4), np.array([0, 1, 2, 4, 0, 0]), "whole numbers of Discrete"),
    "too small a choice": (gym.spaces.Discrete(4, start=1), np.array([1, 0, 1, 1, 1, 1]), "from 0 to 1"),
    "half a choice": (gym.spaces.Discrete(4), np.full(6, 0.5), "whole numbers of Discrete"),
    "another list of choices": (gym.spaces.MultiDiscrete([3, 2]), np.full((6, 2), 2), "MultiDiscrete"),
    "a binary 7": (gym.spaces.MultiBinary(2), np.full((6, 2), 7), "MultiBinary"),
}


def built(backend: str, space: gym.Space[Any], **model: Any) -> Learner:
    config = (
        PPOConfig()
        .framework(backend, compile=quick_mode(backend))
        .training(minibatch_size=None, num_epochs=1)
    )
    config = config.rl_module(model_config={"fcnet_hiddens": [4], **model}).debugging(seed=0)
    return config.build_learner(spaces={"default_policy": (space, gym.spaces.Discrete(2))})


def columns(obs: Any) -> dict[str, Any]:
    zeros = np.zeros(len(obs), np.float32)
    return {
        Columns.OBS: obs,
        Columns.ACTIONS: np.zeros(len(obs), np.int64),
        Columns.ACTION_LOGP: zeros,
        Columns.ACTION_DIST_INPUTS: np.zeros((len(obs), 2), np.float32),
        Columns.ADVANTAGES: zeros + 1.0,
        Columns.VALUE_TARGETS: zeros,
    }


@pytest.mark.parametrize("what", WRONG)
def test_what_a_network_would_misread_is_refused_and_changes_nothing(backend: str, what: str) -> None:
    space, obs, said = WRONG[what]
    learner = built(backend, space)
    before = digest(learner.get_state())
    for use in (learner.compute_actions, learner.compute_values, lambda obs: learner.update(columns(obs))):
        with pytest.raises(BatchError, match=said):
            use(obs)
    assert digest(learner.get_state()) == before


@pytest.mark.parametrize(
    ("space", "obs"),
    [
        (IMAGES, BYTES),
        (gym.spaces.Discrete(4, start=1), np.arange(1, 5)),
        (gym.spaces.MultiDiscrete([3, 2]), np.array([[2, 1], [0, 0], [1, 1]])),
    ],
)
def test_whole_numbers_may_be_floats(backend: str, space: gym.Space[Any], obs: Any) -> None:
    one, other = built(backend, space), built(backend, space)
    one.update(columns(obs))
    other.update(columns(obs.astype(np.float64)))
    assert digest(one.get_weights()) == digest(other.get_weights())
    np.testing.assert_array_equal(one.compute_values(obs), other.compute_values(obs.astype(np.float32)))


@pytest.mark.parametrize("space", [gym.spaces.Discrete(4, start=1), gym.spaces.Box(0, 9, (), np.uint8)])
def test_rows_that_do_not_count_may_be_anything(backend: str, space: gym.Space[Any]) -> None:
    learner = built(backend, space)
    mask = np.array([True, True, False])
    results = learner.update({**columns(np.array([1.0, 2.0, 0.5])), Columns.LOSS_MASK: mask})
    assert np.isfinite(results["default_policy"]["total_loss"])


def test_steps_that_do_not_count_may_be_anything(backend: str) -> None:
    learner = built(backend, gym.spaces.Discrete(4, start=1), use_lstm=True, max_seq_len=3)
    rows = {name: np.stack([each, each]) for name, each in columns(np.array([1, 2, 0])).items()}
    state = {
        f"{Columns.STATE_IN}/{name}": np.stack([each] * 2)
        for name, each in learner.module["default_policy"].get_initial_state().items()
    }
    batch = {**rows, **state, Columns.SEQ_LENS: np.array([2, 2])}
    learner.update(batch)
    with pytest.raises(BatchError, match="whole numbers of Discrete"):
        learner.update({**batch, Columns.SEQ_LENS: np.array([2, 3])})


def test_a_model_that_is_not_built_in_gets_what_is_given(backend: str) -> None:
    spec = RLModuleSpec(module_class=RandomRLModule)
    config = PPOConfig().framework(backend).rl_module(rl_module_spec=spec)
    learner = config.build_learner(spaces={"default_policy": (IMAGES, gym.spaces.Discrete(2))})
    assert learner.compute_actions(BYTES / 255.0)[Columns.ACTIONS].shape == (6,)


@pytest.mark.parametrize(
    ("obs", "new_obs", "said"),
    [
        (np.zeros(6, np.int64), np.full(6, 4), "whole numbers of Discrete"),
        (np.zeros(6, np.int64), np.zeros((6, 1), np.int64), "shape"),
    ],
    ids=["a choice", "a shape"],
)
def test_the_next_observations_are_checked_where_they_are_read(
    backend: str, obs: Any, new_obs: Any, said: str
) -> None:
    config = DQNConfig().framework(backend, compile=quick_mode(backend)).training(minibatch_size=None)
    spaces = {"default_policy": (gym.spaces.Discrete(4), gym.spaces.Discrete(2))}
    learner = config.build_learner(spaces=spaces)
    rows = {
        Columns.OBS: obs,
        Columns.ACTIONS: np.zeros(6, np.int64),
        Columns.REWARDS: np.ones(6, np.float32),
        Columns.TERMINATEDS: np.zeros(6, np.float32),
    }
    before = digest(learner.get_state())
    with pytest.raises(BatchError, match=f"column 'new_obs': expected {said}"):
        learner.update({**rows, Columns.NEXT_OBS: new_obs})
    assert digest(learner.get_state()) == before
    learner.update({**rows, Columns.NEXT_OBS: obs})


def test_what_follows_an_end_may_be_anything(backend: str) -> None:
    config = DQNConfig().framework(backend, compile=quick_mode(backend)).training(minibatch_size=None)
    spaces = {"default_policy": (gym.spaces.Discrete(4, start=1), gym.spaces.Discrete(2))}
    learner = config.build_learner(spaces=spaces)
    zeros = np.zeros(2, np.int64)
    results = learner.update(
        {
            Columns.OBS: zeros + 1,
            Columns.ACTIONS: zeros,
            Columns.REWARDS: zeros.astype(np.float32),
            Columns.TERMINATEDS: np.array([0.0, 1.0], np.float32),
            Columns.NEXT_OBS: np.array([2, 0]),
        }
    )
    assert np.isfinite(results["default_policy"]["total_loss"])
