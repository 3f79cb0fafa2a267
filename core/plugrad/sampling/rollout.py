"""Step environments with a policy, and write what happens to a rollout fragment."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from plugrad.columns import Columns
from plugrad.observations.rows import is_finite
from plugrad.policy.actions import action_converter
from plugrad.sampling.atari import LIFE_LOST
from plugrad.sampling.env_checker import raise_nonfinite
from plugrad.sampling.env_masks import ActionMasks, say_source
from plugrad.sampling.info_metrics import INFO_METRICS, InfoMetrics
from plugrad.sampling.learner_rewards import LearnerRewards
from plugrad.sampling.recurrent_state import ActingPolicy, PolicyFunction
from plugrad.sampling.rollout_fragment import RolloutFragment
from plugrad.sampling.seen_observations import SeenObservations
from plugrad.sampling.vector_envs import VectorEnvs
from plugrad.types import Array


class Rollout:
    """Environments between two steps: what the policy sees next.

    Args:
        envs: the environments.
        policy: acts in them, with its recurrent state.
        seen: turns their observations into what the policy sees.
        rewards: turns their rewards into what a learner sees; None: they stay as they are.
        info_metrics: makes metrics of numbers in their infos; None: there are none.

    Attributes:
        observations: what the policy sees next, `[N, ...]`; None: the environments have to be reset first. The
            caller sets it: after a whole fragment, and to None after an error.
        masks: the action masks of these; None: the environments have none.
    """

    def __init__(
        self,
        envs: VectorEnvs,
        policy: ActingPolicy,
        seen: SeenObservations,
        rewards: LearnerRewards | None = None,
        info_metrics: InfoMetrics | None = None,
    ) -> None:
        self.envs, self.policy, self.seen, self.rewards = envs, policy, seen, rewards
        self.info_metrics = info_metrics
        self.observations: Array | None = None
        self.masks: ActionMasks | None = None
        self._to_env = action_converter(envs.action_space)

    def reset(self, entropy: tuple[int, ...]) -> Array:
        """Begin new episodes everywhere.

        Args:
            entropy: whole numbers that seed the environments; none: from the system.

        Returns:
            The first observations, as the policy sees them.
        """
        raw, infos = self.envs.reset(entropy)
        self.policy.reset()
        if self.rewards is not None:
            self.rewards.reset()
        if self.info_metrics is not None:
            self.info_metrics.reset()
        self.seen.check_and_count(raw)
        self._begin_masks(infos)
        return self.seen.rows(raw)

    def make_masks(self) -> ActionMasks:
        """Masks of these environments, which allow everything."""
        say_source(self.envs.name, self.envs.mask_source)
        return ActionMasks(self.envs)

    def step(self, policy: PolicyFunction, fragment: RolloutFragment, t: int, observations: Array) -> Array:
        """Act in every environment.

        Args:
            policy: chooses the actions, such as `self.policy`.
            fragment: where the step is written.
            t: its number in the fragment.
            observations: what the policy sees.

        Returns:
            What it sees next.

        Raises:
            EnvContractError: an environment broke its contract, or gave a number that is not finite.
        """
        masks = self.masks
        columns = policy(observations) if masks is None else policy(observations, action_mask=masks.current)
        raw, rewards, terminated, truncated, infos = self.envs.step(self._to_env(columns[Columns.ACTIONS]))
        self.seen.check_and_count(raw)
        if "final_obs" in infos:  # reset in the same step: `raw` is what the next episode begins with
            for env, row in zip(*self.seen.final_rows(infos), strict=True):
                fragment.write_final_observation(env, t, row)
        if masks is not None:
            columns = {**columns, **masks.step(infos, terminated, truncated)}
        if self.info_metrics is not None:
            for env, found in self.info_metrics.step(infos[INFO_METRICS], terminated | truncated).items():
                fragment.info_metrics[env, t] = found
        if LIFE_LOST in infos:
            lost = infos[LIFE_LOST].astype(np.bool_)
            columns = {**columns, Columns.LIFE_LOST: lost}
            terminated = terminated | lost  # what is learned from ends here; the game goes on
        if self.rewards is not None:
            columns = {**columns, Columns.ENV_REWARDS: rewards.astype(np.float32)}
            rewards = self._seen_rewards(rewards, terminated | truncated)
        self.policy.reset_ended(terminated | truncated)
        observations = self.seen.rows(raw)
        fragment.write(t, columns, rewards, terminated, truncated, observations)
        return observations

    def _seen_rewards(self, rewards: Array, ended: Array) -> Array:
        assert self.rewards is not None
        if not is_finite(rewards):  # before they would spoil the statistics
            raise_nonfinite(self.envs.name, "rewards", rewards)
        return self.rewards.step(rewards, ended)

    def _begin_masks(self, infos: Mapping[str, Any]) -> None:
        """Take the masks of the first observations, if there are any."""
        if self.masks is None and Columns.ACTION_MASK in infos:
            self.masks = self.make_masks()
        if self.masks is not None:
            self.masks.begin(infos)
