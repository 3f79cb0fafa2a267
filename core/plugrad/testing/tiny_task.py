"""The smallest tasks that can be learned: say whether the first number is positive."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.algorithm_config import AlgorithmConfig, OffPolicyConfig
from plugrad.episodes import SingleAgentEpisode
from plugrad.hooks.registry import get_algorithm
from plugrad.offline import save_episodes
from plugrad.types import Array

STEPS = 8
"""Of an episode: its return is the number of right answers, 4 by chance."""
LEARNED = 0.875 * STEPS
"""The mean return of an algorithm that has learned."""
NUM_DEMONSTRATIONS = 100
SHARE_OF_RANDOM_ACTIONS = 0.1
"""In demonstrations: some actions are wrong, so that algorithms which value actions see worse ones, too."""


class TinyTask(gym.Env[Array, Any]):
    """Three numbers in [-1, 1]; the action says whether the first is positive, with a reward from 0 to 1."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)

    def right_action(self, observation: Array) -> Any:
        """The action with a reward of 1."""
        raise NotImplementedError

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: as in Gymnasium.
            options: not used.

        Returns:
            `(observation, info)`.
        """
        super().reset(seed=seed)
        self._steps = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """One answer."""
        reward = self._reward(self._seen[0] > 0, action)
        self._steps += 1
        return self._look(), reward, self._steps == STEPS, False, {}

    def _look(self) -> Array:
        self._seen = self.np_random.uniform(-1.0, 1.0, 3).astype(np.float32)
        return self._seen

    def _reward(self, is_positive: bool, action: Any) -> float:
        raise NotImplementedError


class RightOrLeft(TinyTask):
    """Discrete: action 1 is right, with a reward of 1, where the first number is positive, else action 0."""

    action_space = gym.spaces.Discrete(2)

    def right_action(self, observation: Array) -> Any:
        """1 or 0."""
        return np.int64(observation[0] > 0)

    def _reward(self, is_positive: bool, action: Any) -> float:
        return float(is_positive == bool(action))


class FarRightOrLeft(TinyTask):
    """Continuous: the reward grows from one bound to the other; the first number's sign says which way.

    The bounds lie unevenly about 0: whoever mistakes actions in [-1, 1] for those of the Box gets too little.
    """

    action_space = gym.spaces.Box(-0.5, 1.5, (1,), np.float32)

    def right_action(self, observation: Array) -> Any:
        """One of the bounds."""
        return self.action_space.high if observation[0] > 0 else self.action_space.low

    def _reward(self, is_positive: bool, action: Any) -> float:
        low, high = float(self.action_space.low[0]), float(self.action_space.high[0])
        share = (float(action[0]) - low) / (high - low)
        return share if is_positive else 1.0 - share


TASKS: dict[str, type[TinyTask]] = {"discrete": RightOrLeft, "continuous": FarRightOrLeft}


def tiny_algorithm_config(
    algorithm: str,
    backend: str,
    task: type[TinyTask],
    recorded_episodes: Callable[[], Path],
    compile: str = "auto",
) -> AlgorithmConfig:
    """A few dozen weights and a few rows. An off-policy algorithm learns from the first step on.

    Args:
        algorithm: short name.
        backend: short name.
        task: the environment.
        recorded_episodes: gives a directory of them; asked for an algorithm that learns offline.
        compile: mode of the update.

    Returns:
        The config.
    """
    config: AlgorithmConfig = get_algorithm(algorithm)().framework(backend, compile=compile).debugging(seed=1)
    config = config.environment(task).rl_module(model_config={"fcnet_hiddens": [4]})
    config = config.env_runners(num_envs_per_env_runner=4)
    config = config.training(train_batch_size=32, minibatch_size=16, num_epochs=1, lr=0.01)
    if isinstance(config, OffPolicyConfig):
        early = {"num_steps_sampled_before_learning_starts": 16, "random_steps": 0}
        config = config.env_runners(rollout_fragment_length=4).training(**early)
    if config.is_offline and "input_" in config.fields():
        config = config.training(input_=str(recorded_episodes()))
    return config


def record_demonstrations(task: type[TinyTask], path: Path) -> None:
    """Write episodes with mostly right actions, for algorithms that learn from recorded episodes.

    Args:
        task: what is played.
        path: a new directory.
    """
    env, rng = task(), np.random.default_rng(0)
    env.action_space.seed(0)
    episodes = [_demonstration(env, seed, rng) for seed in range(NUM_DEMONSTRATIONS)]
    save_episodes(path, episodes, observation_space=env.observation_space, action_space=env.action_space)


def _demonstration(env: TinyTask, seed: int, rng: np.random.Generator) -> SingleAgentEpisode:
    observation, _ = env.reset(seed=seed)
    observations, actions, rewards, terminated = [observation], [], [], False
    while not terminated:
        is_random = rng.random() < SHARE_OF_RANDOM_ACTIONS
        action = env.action_space.sample() if is_random else env.right_action(observation)
        observation, reward, terminated, _, _ = env.step(action)
        observations.append(observation)
        actions.append(action)
        rewards.append(reward)
    return SingleAgentEpisode(
        observations=np.stack(observations),
        actions=np.stack(actions),
        rewards=np.asarray(rewards, np.float32),
        terminated=True,
    )
