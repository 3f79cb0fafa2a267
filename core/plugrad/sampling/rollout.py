"""Step environments with a policy, write what happens to a rollout fragment, and save and continue running episodes."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from plugrad.columns import Columns
from plugrad.observations import row_shape
from plugrad.observations.rows import is_finite
from plugrad.policy.actions import action_converter
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.policy.observations import ObservationEncoder
from plugrad.sampling.atari import LIFE_LOST
from plugrad.sampling.env_checker import raise_nonfinite
from plugrad.sampling.env_clock import EnvClock
from plugrad.sampling.env_masks import ActionMasks, say_source
from plugrad.sampling.episode_metrics import EpisodeMetrics
from plugrad.sampling.info_metrics import INFO_METRICS, InfoMetrics
from plugrad.sampling.learner_rewards import LearnerRewards
from plugrad.sampling.recurrent_state import ActingPolicy, PolicyFunction
from plugrad.sampling.rollout_fragment import RolloutFragment
from plugrad.sampling.vector_envs import RunningEpisode, VectorEnvs
from plugrad.types import Array


class SeenObservations:
    """Checks observations, counts them in the statistics, and encodes them as the rows that a policy sees.

    Args:
        encoder: scales and casts flat observations.
        name: of the environment, for errors.
        space: of its observations before they are flattened, for errors.
    """

    def __init__(self, encoder: ObservationEncoder, *, name: str, space: Space[Any]) -> None:
        self._encoder = encoder
        self._name, self._space = name, space

    @property
    def normalizer(self) -> ObservationNormalizer | None:
        """Scales the observations; None: they stay as they are."""
        return self._encoder.normalizer

    @normalizer.setter
    def normalizer(self, normalizer: ObservationNormalizer | None) -> None:
        self._encoder.normalizer = normalizer

    def check_and_count(self, raw: Array, envs: Array | None = None) -> None:
        """Refuse observations that are not finite, and add the others to the statistics.

        Args:
            raw: `[N, ...]`.
            envs: int `[N]`, the environments that gave them; None: all, in order.

        Raises:
            EnvContractError: names the environment, and the part of a Dict or Tuple.
        """
        if not self._encoder.gives_finite_rows(raw):
            raise_nonfinite(self._name, "observations", raw, space=self._space, envs=envs)
        if self.normalizer is not None:
            self.normalizer.update(raw)

    def rows(self, raw: Array) -> Array:
        """Rows [N, ...] of observations [N, ...]; a new array."""
        return self._encoder.rows(raw)

    def final_rows(self, infos: Mapping[str, Any]) -> tuple[list[int], Array]:
        """Count and encode the final observations of episodes that ended in a step that also reset them.

        Args:
            infos: of that step: `final_obs`, and `_final_obs`, bool [N], which says where there is one.

        Returns:
            The indices of the environments, and a row for each.
        """
        ended = np.flatnonzero(infos["_final_obs"])
        raw = np.stack(infos["final_obs"][ended].tolist())
        self.check_and_count(raw, ended)
        return ended.tolist(), self.rows(raw)


class Rollout:
    """Environments between two steps: what the policy sees next.

    Args:
        envs: the environments.
        policy: acts in them, with its recurrent state.
        seen: turns their observations into what the policy sees.
        rewards: turns their rewards into what a learner sees; None: they stay as they are.
        info_metrics: makes metrics of numbers in their infos; None: there are none.
        clock: tells since when the environments are called.

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
        *,
        clock: EnvClock,
    ) -> None:
        self.envs, self.policy, self.seen, self.rewards = envs, policy, seen, rewards
        self.info_metrics = info_metrics
        self.clock = clock
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
        with self.clock:
            raw, infos = self.envs.reset(entropy)
        self.policy.reset()
        if self.rewards is not None:
            self.rewards.reset()
        if self.info_metrics is not None:
            self.info_metrics.reset()
        self.seen.check_and_count(raw)
        self._begin_masks(infos)
        return self.seen.rows(raw)

    def _make_masks(self) -> ActionMasks:
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
        actions = self._to_env(columns[Columns.ACTIONS])
        with self.clock:
            raw, rewards, terminated, truncated, infos = self.envs.step(actions)
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
            self.masks = self._make_masks()
        if self.masks is not None:
            self.masks.begin(infos)

    # --- running episodes: their state, and how a resumed run continues them -------------------------------------

    def get_running_state(self, metrics: EpisodeMetrics) -> dict[str, Any] | None:
        """The state of the running episodes; None if no episode runs, or one cannot be replayed.

        Args:
            metrics: has the numbers, returns and lengths of the episodes.
        """
        environments = None if self.observations is None else self.envs.get_running_episodes()
        if self.observations is None or environments is None:
            return None
        return {
            **metrics.get_running_state(),
            "observations": self.observations.copy(),
            **({} if self.masks is None else {Columns.ACTION_MASK: self.masks.current.copy()}),
            "policy": self.policy.get_state(),
            **({} if self.rewards is None else {"rewards": self.rewards.get_state()}),
            **({} if self.info_metrics is None else {"info_metrics": self.info_metrics.get_state()}),
            "environments": environments,
        }

    def set_running_state(self, running: Mapping[str, Any], metrics: EpisodeMetrics) -> bool:
        """Continue running episodes: replay them, and begin new ones, with a warning, where they are not repeated.

        Args:
            running: a state of `get_running_state`.
            metrics: takes the numbers, returns and lengths of the episodes.

        Returns:
            False, and nothing was changed, where the environments cannot replay, or their number or observations are
            not those of the state.
        """
        shape = (self.envs.num_envs, *row_shape(self.envs.row_space))
        if not self.envs.can_replay or running["observations"].shape != shape:
            return False
        metrics.set_running_state(running)
        self.policy.set_state(running.get("policy", {}))
        if self.rewards is not None:
            self.rewards.set_state(running.get("rewards", {}))
        if self.info_metrics is not None:
            self.info_metrics.set_state(running.get("info_metrics", {}))
        observations = np.array(running["observations"])
        episodes = list(self.envs.replay(running["environments"]))
        for env, episode in enumerate(episodes):
            if not self._is_repeated(env, episode, running):
                episodes[env], observations[env] = self._restart(env, metrics)
        self.masks = None
        infos = [episode.info for episode in episodes]
        if any(Columns.ACTION_MASK in info for info in infos):
            self.masks = self._make_masks()
            self.masks.begin_replayed(infos, [episode.num_steps for episode in episodes])
        self.observations = observations
        return True

    def _is_repeated(self, env: int, episode: RunningEpisode, running: Mapping[str, Any]) -> bool:
        """Whether a replayed environment shows what it showed when it was saved."""
        if episode.observation is None:
            return False
        row = self.seen.rows(episode.observation[None])[0]
        is_same = np.array_equal(row, running["observations"][env])
        if Columns.ACTION_MASK not in running:
            return is_same
        mask = np.asarray(episode.info.get(Columns.ACTION_MASK))
        return is_same and np.array_equal(mask, running[Columns.ACTION_MASK][env])

    def _restart(self, env: int, metrics: EpisodeMetrics) -> tuple[RunningEpisode, Array]:
        """Begin a new episode in one environment; its first observation, as the policy sees it."""
        warnings.warn(
            f"environment {env} did not repeat its running episode from the same seed and actions: "
            "it begins a new one; this run may differ from one without interruption",
            stacklevel=4,
        )
        episode = self.envs.restart(env)
        raw = np.asarray(episode.observation)[None]
        metrics.begin(env)
        self.policy.reset_one(env)
        if self.rewards is not None:
            self.rewards.reset_one(env)
        if self.info_metrics is not None:
            self.info_metrics.reset_one(env)
        self.seen.check_and_count(raw, np.array([env]))
        return episode, self.seen.rows(raw)[0]
