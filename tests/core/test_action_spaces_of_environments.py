"""Environments of every action space: sampled, resumed in the middle of episodes, vectorised, recorded."""

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, iterate
from sampling import make_runner

from plugrad import SingleAgentEpisode, numpy_ops
from plugrad.action_rows import action_shape, structure_leaves
from plugrad.distributions import distribution_class
from plugrad.errors import BatchError, ConfigError
from plugrad.offline import load_episodes, save_episodes
from plugrad.types import Array
from plugrad_bc import BCConfig
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig, TD3Config

LENGTH = 5
OBSERVATIONS = Box(-np.inf, np.inf, (2,), np.float32)
SPACES: dict[str, Space[Any]] = {
    "Discrete": Discrete(3, start=4),
    "MultiDiscrete": MultiDiscrete([[2, 3], [4, 2]], dtype=np.uint8, start=[[0, 1], [2, 9]]),
    "MultiBinary": MultiBinary([2, 2]),
    "Box": Box(-0.3, 0.7, (2, 1, 2), np.float64),
    "number": Box(-0.3, 0.7, ()),
    "integers": Box(0, 3, (2,), np.uint8),
    "Tuple": Tuple([Discrete(3), Box(-0.3, 0.7, (2, 2), np.float64), Dict(on=MultiBinary(2))]),
    "Dict": Dict(turn=MultiDiscrete([3, 2], start=[1, 0]), buttons=MultiBinary(3)),
}
each_space = pytest.mark.parametrize("name", SPACES)


def number_of(space: Space[Any], action: Any) -> float:
    """Says which action it was."""
    assert space.contains(action), action
    numbers = np.concatenate([np.ravel(leaf).astype(np.float64) for leaf in structure_leaves(space, action)])
    return float(np.float32(numbers @ np.arange(1.0, len(numbers) + 1.0)))


class Told(gym.Env[Any, Any]):
    """Observes its step and the number of the last action."""

    observation_space = OBSERVATIONS

    def __init__(self, name: str) -> None:
        self.action_space = SPACES[name]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        number = number_of(self.action_space, action)
        return np.float32([self.steps, number]), number, self.steps == LENGTH, False, {}


class ToldVector(VectorEnv[Any, Any, Any]):
    """Many at once, which reset in the step after an end."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, name: str, num_envs: int) -> None:
        self.num_envs, self.single_action_space, self.single_observation_space = (
            num_envs,
            SPACES[name],
            OBSERVATIONS,
        )
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(OBSERVATIONS, num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return np.zeros((self.num_envs, 2), np.float32), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.steps = (self.steps + 1) % (LENGTH + 1)
        each = list(iterate(self.action_space, actions))
        numbers = np.float32([number_of(self.single_action_space, action) for action in each])
        observations = np.stack(
            [np.full(self.num_envs, np.float32(self.steps)), numbers * (self.steps > 0)], 1
        )
        ended = np.full(self.num_envs, self.steps == LENGTH)
        return observations, numbers, ended, np.zeros_like(ended), {}


gym.register("plugrad/Told-v0", entry_point=Told, vector_entry_point=ToldVector)


def policy_for(space: Space[Any]) -> Callable[[Array], dict[str, Array]]:
    """Its actions depend on the observation alone."""
    bound = distribution_class(space, numpy_ops)

    def act(observations: Array) -> dict[str, Array]:
        rngs = [
            np.random.default_rng([int(step), abs(hash(float(told))) % 2**31]) for step, told in observations
        ]
        rows = [
            bound.from_logits(rng.normal(size=bound.input_dim).astype(np.float32)).sample(rng) for rng in rngs
        ]
        return {"actions": np.stack(rows)}

    return act


def runner_of(name: str, **settings: Any) -> Any:
    return make_runner(policy_for(SPACES[name]), env="plugrad/Told-v0", env_config={"name": name}, **settings)


def env_action(space: Any, row: Array) -> Any:
    """What the environment is told for one row, by numpy."""
    if isinstance(space, Tuple | Dict):
        parts = list(space.spaces.values() if isinstance(space, Dict) else space.spaces)
        pieces = np.split(row, np.cumsum([numbers_in(part) for part in parts])[:-1])
        found = [env_action(part, piece) for part, piece in zip(parts, pieces, strict=True)]
        return dict(zip(space.spaces, found, strict=True)) if isinstance(space, Dict) else tuple(found)
    row = row.reshape(space.shape)
    if isinstance(space, Box):
        clipped = np.clip(row.astype(np.float64), space.low, space.high)
        return (clipped if space.dtype.kind == "f" else np.round(clipped)).astype(space.dtype)
    return np.asarray(row + getattr(space, "start", 0)).astype(space.dtype)


def numbers_in(space: Any) -> int:
    if isinstance(space, Tuple | Dict):
        return sum(map(numbers_in, space.spaces.values() if isinstance(space, Dict) else space.spaces))
    return int(np.prod(space.shape))


def assert_told(name: str, episodes: list[SingleAgentEpisode]) -> None:
    """The environments were told what the episodes say, clipped, rounded and shifted."""
    space = SPACES[name]
    for episode in episodes:
        assert episode.actions.shape == (len(episode), *action_shape(space))
        numbers = np.float32([number_of(space, env_action(space, row)) for row in episode.actions])
        np.testing.assert_allclose(episode.rewards, numbers, rtol=1e-6)
        np.testing.assert_allclose(episode.observations[1:, 1], numbers, rtol=1e-6)


def assert_same(one: list[SingleAgentEpisode], other: list[SingleAgentEpisode]) -> None:
    for left, right in zip(one, other, strict=True):
        for column in ("observations", "actions", "rewards"):
            np.testing.assert_array_equal(getattr(left, column), getattr(right, column))


@each_space
@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
@pytest.mark.parametrize("random_actions", [False, True])
def test_environments_are_told_what_the_episodes_say(name: str, mode: str, random_actions: bool) -> None:
    runner = runner_of(name, vectorization_mode=mode)
    for steps in (3, 2 * LENGTH):
        assert_told(name, runner.sample(steps, random_actions=random_actions))


@each_space
def test_a_runner_resumes_in_the_middle_of_an_episode(name: str) -> None:
    runner = runner_of(name)
    runner.sample(3, random_actions=True)
    resumed = runner_of(name)
    resumed.set_state(runner.get_state())
    (first, *_), (same, *_) = runner.sample(2 * LENGTH), resumed.sample(2 * LENGTH)
    assert len(first) == LENGTH - 3
    assert_same([first], [same])


@each_space
def test_recorded_episodes_come_back(name: str, tmp_path: Any) -> None:
    runner = runner_of(name)
    episodes = runner.sample(2 * LENGTH)
    spaces = {"observation_space": runner.observation_space, "action_space": runner.action_space}
    save_episodes(tmp_path, episodes, **spaces)
    data = load_episodes(str(tmp_path))
    assert data.action_space == SPACES[name]
    assert_same(episodes, list(data.episodes))


@pytest.mark.parametrize(
    ("name", "place", "value", "words"),
    [
        ("MultiBinary", (0, 1, 1), 2, "'actions': expected whole numbers from 0 to below 2"),
        ("MultiDiscrete", (0, 0, 1), 3, "'actions': expected whole numbers"),
        (
            "Tuple",
            (0, 0),
            3.0,
            r"actions\[0\].*below 3, counted from 0 .* Discrete\(3\), found float32 from 0.0 to 3.0",
        ),
        ("Tuple", (0, 0), 0.5, r"actions\[0\]"),
        ("Tuple", (1, 5), -1.0, r"actions\[2\]\['on'\]"),
        ("Dict", (2, 1), 3, r"actions\['turn'\]"),
    ],
)
def test_recorded_actions_that_are_none_are_refused_by_their_part(
    name: str, place: Any, value: float, words: str, tmp_path: Any
) -> None:
    runner = runner_of(name)
    episode = runner.sample(LENGTH)[0]
    episode.actions[place] = value
    spaces = {"observation_space": runner.observation_space, "action_space": runner.action_space}
    with pytest.raises(BatchError, match=words):
        save_episodes(tmp_path, [episode], **spaces)


def test_recorded_actions_of_other_parts_are_refused(tmp_path: Any) -> None:
    runner = runner_of("Dict")
    spaces = {"observation_space": runner.observation_space, "action_space": runner.action_space}
    save_episodes(tmp_path, runner.sample(LENGTH), **spaces)
    others = Dict(turn=MultiDiscrete([2, 2]), buttons=MultiBinary(3))
    cloning = (
        BCConfig()
        .framework("numpy")
        .rl_module(model_config={"fcnet_hiddens": [1]})
        .training(train_batch_size=4, minibatch_size=None)
        .offline_data(input_=str(tmp_path))
    )
    same, other = (
        cloning.environment(observation_space=OBSERVATIONS, action_space=space)
        for space in (SPACES["Dict"], others)
    )
    assert np.isfinite(same.build_algo().train()["learners/default_policy/total_loss"])
    with pytest.raises(
        ConfigError, match=r"action_spaces differ: \['turn'\]: MultiDiscrete\(\[2, 2\]\) asked"
    ):
        other.build_algo().train()


class Bounded(gym.Env[Any, Any]):
    """Its actions have these bounds."""

    observation_space = OBSERVATIONS

    def __init__(self, low: Any, high: Any) -> None:
        self.action_space = Box(np.float32(low), np.float32(high))


RESCALED = [("gymnasium.wrappers:RescaleAction", {"min_action": -1.0, "max_action": 1.0})]


@pytest.mark.filterwarnings("ignore:.*precision lowered")  # by Gymnasium's wrapper
@pytest.mark.parametrize(
    ("config", "low", "high", "wrappers", "warns"),
    [
        (PPOConfig(), [50], [100], [], True),
        (PPOConfig(), [-100], [-50], [], True),
        (PPOConfig(), [-1, -20], [1, 20], [], True),
        (PPOConfig(), [-0.05], [0.05], [], True),
        (PPOConfig(), [50], [100], RESCALED, False),
        (PPOConfig(), [-2, 0], [2, 1], [], False),
        (PPOConfig(), [-np.inf, 50], [np.inf, np.inf], [], False),
        (SACConfig(), [50], [100], [], False),
        (TD3Config(), [50], [100], [], False),
    ],
)
def test_bounds_that_a_gaussian_hardly_reaches_are_warned_of_once(
    config: Any, low: Any, high: Any, wrappers: Any, warns: bool
) -> None:
    config = config.environment(Bounded, env_config={"low": low, "high": high}).framework("numpy")
    config = config.env_runners(env_wrappers=wrappers)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        config.build_algo()
    found = [str(each.message) for each in caught if "Gaussian" in str(each.message)]
    assert len(found) == warns
    for message in found:
        assert message.startswith("the actions are Box(")
        assert f".env_runners(env_wrappers={RESCALED})".replace("'", '"') in message
