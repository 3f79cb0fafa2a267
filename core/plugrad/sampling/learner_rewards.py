"""From the rewards of environments to those that a learner sees: clipped, then divided by their scale."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from plugrad.config import Config
from plugrad.policy.normalization import RunningMoments
from plugrad.sampling.atari import is_atari
from plugrad.types import Array


class RewardNormalizer(RunningMoments):
    """Divides rewards by the standard deviation of the discounted returns seen so far, and clips them.

    `reward / sqrt(variance + epsilon)`, within `[-clip, clip]`, as in `VecNormalize` of stable-baselines3. The
    discounted return of an environment at a step is `gamma * (that of the step before) + reward`; it begins at 0 with
    each episode. The mean is not subtracted.

    Args:
        clip: normalised rewards lie in `[-clip, clip]`.
        epsilon: added to the variance.
    """

    of = "discounted returns"

    def __init__(self, *, clip: float = 10.0, epsilon: float = 1e-8) -> None:
        self._clip, self._epsilon = clip, epsilon
        super().__init__(())

    def update(self, rows: Array) -> None:
        """Add discounted returns [N] to the statistics."""
        if len(rows) == 1:
            self.merge(1, rows[0], 0.0)
        elif len(rows):
            mean = np.add.reduce(rows) / len(rows)
            deviations = rows - mean
            self.merge(len(rows), mean, deviations.dot(deviations))  # half the time of a square and its sum

    def normalize(self, rewards: Array) -> Array:
        """Normalised rewards, float32 [N]; the statistics stay as they are.

        Args:
            rewards: [N].
        """
        scaled = rewards * self._inverse_std
        np.minimum(np.maximum(scaled, -self._clip, out=scaled), self._clip, out=scaled)
        return scaled.astype(np.float32)

    def _set_moments(self, count: int, mean: Array, m2: Array) -> None:
        super()._set_moments(count, mean, m2)
        self._inverse_std = 1.0 / np.sqrt(self.variance + self._epsilon)


class LearnerRewards:
    """What a learner sees of the rewards of environments that step together.

    Args:
        clip: True: the sign of a reward; a number: the largest absolute value; None: rewards are not clipped.
        normalizer: scales rewards after they were clipped; None: they are not scaled.
        gamma: discount per step of the returns that give the scale.
        num_envs: `N`.
        next_step_autoreset: the step after an episode's end only resets the environment.

    Attributes:
        normalizer: see above; another one may be set.
    """

    def __init__(
        self,
        *,
        clip: bool | float | None,
        normalizer: RewardNormalizer | None,
        gamma: float,
        num_envs: int,
        next_step_autoreset: bool,
    ) -> None:
        self.normalizer = normalizer
        self._clip, self._gamma = clip, gamma
        self._returns = np.zeros(num_envs)
        self._only_resets = np.zeros(num_envs, np.bool_)
        self._next_step_autoreset = next_step_autoreset

    @classmethod
    def of(cls, config: Config, num_envs: int, *, next_step_autoreset: bool) -> "LearnerRewards | None":
        """The `LearnerRewards` of a config.

        Args:
            config: the settings.
            num_envs: how many environments step together.
            next_step_autoreset: see the class.

        Returns:
            None if a learner sees the rewards as they are.
        """
        clip = reward_clip(config)
        if clip is None and not config.normalize_rewards:
            return None
        normalizer = RewardNormalizer() if config.normalize_rewards else None
        return cls(
            clip=clip,
            normalizer=normalizer,
            gamma=config.gamma,
            num_envs=num_envs,
            next_step_autoreset=next_step_autoreset,
        )

    def step(self, rewards: Array, ended: Array) -> Array:
        """Take the rewards of one step of all environments, and add them to the statistics.

        Args:
            rewards: the environments' own, [N].
            ended: bool [N]: where the step ended an episode.

        Returns:
            What a learner sees, float32 [N].
        """
        clipped = clip_rewards(rewards, self._clip)
        if self.normalizer is None:
            return clipped
        self._returns = self._returns * self._gamma + clipped
        counted = self._returns[~self._only_resets] if self._next_step_autoreset else self._returns
        self.normalizer.update(counted)
        self._returns[ended] = 0.0
        self._only_resets = ended & self._next_step_autoreset
        return self.normalizer.normalize(clipped)

    def reset(self) -> None:
        """Begin new episodes everywhere."""
        self._returns[:] = 0.0
        self._only_resets[:] = False

    def reset_one(self, env: int) -> None:
        """Begin a new episode in one environment."""
        self._returns[env] = 0.0

    def get_state(self) -> dict[str, Any]:
        """The discounted returns of the running episodes, `{"returns": float64 [N]}`; a copy."""
        return {"returns": self._returns.copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue running episodes with a state of `get_state`; an empty one: their returns begin at 0."""
        self.reset()
        if "returns" in state:
            self._returns = np.array(state["returns"], np.float64)


def reward_clip(config: Config) -> bool | float | None:
    """How rewards are clipped: True: to their sign; a number: its limit; None: not at all."""
    if config.clip_rewards is None:
        return True if is_atari(config) else None
    return None if config.clip_rewards is False else config.clip_rewards


def clip_rewards(rewards: Array, clip: bool | float | None) -> Array:
    """Clipped rewards.

    Args:
        rewards: any shape.
        clip: see `reward_clip`.

    Returns:
        float32, of the same shape.
    """
    if clip is True:
        return np.sign(rewards).astype(np.float32)
    if clip is None:
        return rewards.astype(np.float32)
    return np.clip(rewards, -clip, clip).astype(np.float32)
