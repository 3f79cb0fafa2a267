"""The env runner: steps vector environments with a policy and returns episodes."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import index
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from plugrad.config import Config
from plugrad.episodes import SingleAgentEpisode
from plugrad.observations import model_space, stored_space
from plugrad.observations.rows import is_finite
from plugrad.policy.actions import random_action_sampler
from plugrad.policy.normalization import ObservationNormalizer, check_normalizes
from plugrad.policy.observations import ObservationEncoder
from plugrad.sampling.base_env_runner import BaseEnvRunner
from plugrad.sampling.env_calls import EnvCall
from plugrad.sampling.env_checker import raise_nonfinite
from plugrad.sampling.episode_metrics import EpisodeMetrics, NamedMeans
from plugrad.sampling.faults import with_faults_counted
from plugrad.sampling.info_metrics import InfoMetrics, warn_of_missing
from plugrad.sampling.learner_rewards import LearnerRewards, RewardNormalizer
from plugrad.sampling.recurrent_state import ActingPolicy, InitialState, PolicyFunction
from plugrad.sampling.rollout import Rollout, SeenObservations
from plugrad.sampling.rollout_fragment import RolloutFragment, split_at_episode_ends
from plugrad.sampling.vector_envs import VectorEnvs
from plugrad.sampling.vectorization import check_fits_settings, make_vector_envs
from plugrad.sampling.watched_episodes import EpisodeNotifier
from plugrad.types import DEFAULT_MODULE_ID, Array, ModuleID


class EnvRunner(BaseEnvRunner[SingleAgentEpisode]):
    """Samples episodes from `config.num_envs_per_env_runner` environments that step together.

    Observations are stored as the policy saw them: float32 (images uint8), normalised if
    `config.normalize_observations`; so is the final observation of an episode. Actions are stored as the policy
    returned them. The environment gets them clipped to its bounds and shifted to its first action.

    An episode that is still running when `sample()` returns is handed out as a chunk that is not done; the next
    `sample()` continues it.

    Args:
        config: the settings.
        act: the policy, a function of observations float32 or uint8 `[N, ...]`. It returns columns
            `{column: [N, ...]}`: `"actions"`, and others that become `extra_model_outputs`.
        initial_state: of a recurrent policy, `{name: array}` for one environment at the start of an episode, or a
            function that returns it and is asked whenever episodes begin. The state
            is carried from step to step and recorded as columns `state_in/<name>`.
        seed: seeds the environments: the same seed and policy give the same episodes. None: from the system.
        normalizer: statistics to use in place of new ones, such as a frozen copy of another runner's.
        module_id: the module that acts; the episodes carry it.
        make_envs: makes the environments of the settings.
        begin: is told the environments in which episodes begin, bool `[N]`, and None where a rollout begins.

    Raises:
        ConfigError: the environment cannot be made (`plugrad.sampling.vectorization.make_vector_envs`).
        SpaceMismatchError: the settings have spaces, and the environment's do not fit them.
        EnvContractError: by `sample()`, if an environment breaks Gymnasium's contract
            (`plugrad.sampling.env_checker`), or gives a NaN or infinite observation or reward.
    """

    def __init__(
        self,
        *,
        config: Config,
        act: PolicyFunction,
        initial_state: InitialState | None = None,
        seed: int | None = None,
        normalizer: ObservationNormalizer | None = None,
        module_id: ModuleID = DEFAULT_MODULE_ID,
        make_envs: Callable[[Config], VectorEnvs] = make_vector_envs,
        begin: Callable[[Array | None], None] | None = None,
    ) -> None:
        self.config, self._begin = config, begin
        config = self.config
        self._make_envs = make_envs
        self._envs = envs = make_envs(config)
        if normalizer is None and config.normalize_observations:
            normalizer = ObservationNormalizer.of_space(envs.observation_space)
        self.observation_space: Space[Any] = model_space(
            envs.observation_space, normalized=normalizer is not None
        )
        check_fits_settings(config, envs, self.observation_space)
        rows = stored_space(envs.row_space)
        encoder = ObservationEncoder(rows, rows, normalizer)
        seen = SeenObservations(encoder, name=envs.name, space=envs.observation_space)
        policy = ActingPolicy(
            act,
            initial_state or {},
            envs.num_envs,
            next_step_autoreset=not envs.resets_in_same_step,
            begin=begin,
        )
        rewards = LearnerRewards.of(config, envs.num_envs, next_step_autoreset=not envs.resets_in_same_step)
        next_step = not envs.resets_in_same_step
        info_metrics = None
        if config.info_metrics:
            info_metrics = InfoMetrics(config.info_metrics, envs.num_envs, next_step_autoreset=next_step)
        self._rollout = Rollout(envs, policy, seen, rewards, info_metrics, clock=self.clock)
        self._named, self._info_metrics_of_ended = NamedMeans(), dict[str, dict[str, float]]()
        self._num_reset_steps = int(not envs.resets_in_same_step)
        self._module_id = module_id
        self._counted = EpisodeMetrics(envs.num_envs)
        self.reset(seed)

    @property
    def config(self) -> Config:
        """The settings, with the faults among `info_metrics` where a wrapper counts them."""
        return self._config

    @config.setter
    def config(self, config: Config) -> None:
        self._config = with_faults_counted(config)

    @property
    def normalizer(self) -> ObservationNormalizer | None:
        """Scales the observations that the policy sees; None: they stay as they are."""
        return self._rollout.seen.normalizer

    @normalizer.setter
    def normalizer(self, normalizer: ObservationNormalizer | None) -> None:
        self._rollout.seen.normalizer = normalizer

    @property
    def normalizers(self) -> dict[ModuleID, ObservationNormalizer]:
        """`normalizer` under the id of the module that acts; empty without one."""
        return {} if self.normalizer is None else {self._module_id: self.normalizer}

    @normalizers.setter
    def normalizers(self, normalizers: Mapping[ModuleID, ObservationNormalizer]) -> None:
        self.normalizer = normalizers.get(self._module_id)

    @property
    def reward_normalizer(self) -> RewardNormalizer | None:
        """Scales the rewards that a learner sees; None: their scale stays."""
        return None if self._rollout.rewards is None else self._rollout.rewards.normalizer

    @reward_normalizer.setter
    def reward_normalizer(self, normalizer: RewardNormalizer) -> None:
        assert self._rollout.rewards is not None
        self._rollout.rewards.normalizer = normalizer

    @property
    def env_observation_space(self) -> Space[Any]:
        """The observation space of one environment, before observations are flattened and scaled."""
        return self._envs.observation_space

    @property
    def action_space(self) -> Space[Any]:
        """The action space of one environment."""
        return self._envs.action_space

    @property
    def num_envs(self) -> int:
        """The number of environments that step together."""
        return self._envs.num_envs

    @property
    def counts_by_name(self) -> tuple[dict[str, list[float]], dict[str, int]]:
        """`({name: numbers}, {})` of `config.info_metrics` of the episodes that finished in the last `sample()`."""
        return self._named.new, {}

    def _sample(self, num_steps: int, random_actions: bool) -> list[SingleAgentEpisode]:
        rollout = self._rollout
        if self._begin is not None:
            self._begin(None)
        observations = self._reset_envs() if rollout.observations is None else rollout.observations
        fragment = RolloutFragment(observations, num_steps)
        policy = self._random_policy() if random_actions else rollout.policy
        for t in range(num_steps):
            observations = rollout.step(policy, fragment, t, observations)
        rollout.observations = observations
        if not is_finite(fragment.rewards):
            raise_nonfinite(self._envs.name, "rewards", fragment.rewards)
        return self._make_episodes(fragment)

    def get_metrics(self) -> dict[str, float]:
        """Counts of the last `sample()`, and means over the last 20 finished episodes.

        Returns:
            `num_env_steps_sampled` and `num_episodes` (finished ones) of the last sample. `episode_return_mean`,
            `episode_return_min`, `episode_return_max` and `episode_len_mean` are of whole episodes, also of those that
            were handed out in chunks, and absent until an episode has finished.
        """
        found = {**self._counted.get_metrics(), **self._named.means()}
        warn_of_missing(tuple(self.config.info_metrics), found)
        return found

    def info_metrics_of(self, id_: str) -> dict[str, float]:
        """The metrics `info/<name>` of one episode, as `config.info_metrics` says.

        Args:
            id_: of an episode that ended in the last sample, or is running.

        Returns:
            Those that its steps had numbers for; none for an older episode.
        """
        if id_ in self._info_metrics_of_ended or self._rollout.info_metrics is None:
            return self._info_metrics_of_ended.get(id_, {})
        envs = [env for env in range(self.num_envs) if self._counted.id_of(env) == id_]
        return self._rollout.info_metrics.of(envs[0]) if envs else {}

    def get_state(self) -> dict[str, Any]:
        """The state for `set_state`: counters, metrics, statistics of observations and running episodes.

        Returns:
            A dict of arrays and plain values. Running episodes are saved as seeds and actions under `running`. It is
            None where they cannot be replayed: for a vectorised environment (`"vector_entry_point"`), and if one has
            more than `replayable_env.MAX_ACTIONS` steps. Call `truncate()` after saving such a state.
        """
        return {
            **self._counted.get_state(),
            **({"returns_by_name": self._named.get_state()} if self.config.info_metrics else {}),
            "normalizer": self.normalizer.get_state() if self.normalizer else None,
            "reward_normalizer": self.reward_normalizer.get_state() if self.reward_normalizer else None,
            "running": self._rollout.get_running_state(self._counted),
            **({"num_restarts": self._num_restarts} if self._num_restarts else {}),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of `get_state`, in the middle of the running episodes.

        They are replayed from their seeds and actions, and compared with the saved observations. An environment that
        does not repeat itself begins a new episode, with a warning. If the state holds no running episodes, or those of
        another number of environments, new ones begin everywhere, seeded by the runner's seed and `total_steps`.

        Raises:
            RestoreMismatchError: the state has statistics of observations or rewards and this runner does not normalise
                them, or the other way round, or they have another shape. Nothing was changed.
        """
        self._set_statistics(state)
        self._counted.set_state(state)
        self._named.set_state(state.get("returns_by_name", {}))
        self._num_restarts = index(state.get("num_restarts", 0))
        self._restart_all()
        running = state["running"]
        if self._notifier is not None:
            self._notifier.num_begun = self.num_episodes_begun
        if running is not None and self._rollout.set_running_state(running, self._counted):
            self._first_steps = np.zeros(self.num_envs, np.int64)

    def truncate(self) -> None:
        """Drop running episodes that `get_state` cannot hold, as a runner that is restored from that state does.

        So a run that saves and goes on equals one that is resumed from the save.
        """
        if self._rollout.observations is not None and self._rollout.get_running_state(self._counted) is None:
            self._restart_all()

    @property
    def envs(self) -> Sequence[Any]:
        """See `BaseEnvRunner`."""
        return self._envs.envs

    def _notify_of_steps(self, notifier: EpisodeNotifier) -> None:
        self._envs.notify_of_episodes(notifier, self._counted.id_of)

    def _call_envs(self, call: EnvCall) -> list[Any]:
        return self._envs.call_envs(call)

    def _make_envs_anew(self) -> None:
        self._envs.close()
        self._envs = self._rollout.envs = self._make_envs(self.config)
        self._rollout.masks = None

    def close(self) -> None:
        """Close the environments; calling it again does nothing."""
        self._envs.close()

    def _schedule_reset(self, entropy: tuple[int, ...]) -> None:
        # Reset only when needed: a runner that was restored and not used equals the one that was saved.
        self._entropy = entropy
        self._rollout.observations = None

    def _reset_envs(self) -> Array:
        observations = self._rollout.reset(self._entropy)
        self._first_steps = np.zeros(self.num_envs, np.int64)
        for env in range(self.num_envs):
            self._counted.begin(env)
        return observations

    def _random_policy(self) -> PolicyFunction:
        draw = random_action_sampler(self.action_space, self.num_envs, self._random_actions_stream())
        return partial(self._rollout.policy.with_actions, draw)

    def _make_episodes(self, fragment: RolloutFragment) -> list[SingleAgentEpisode]:
        done = fragment.done
        chunks = list(split_at_episode_ends(done, self._first_steps, num_reset_steps=self._num_reset_steps))
        episodes = []
        self._counted.begin_sample()
        self._named.new, self._info_metrics_of_ended = {}, {}
        for chunk, own_return in zip(chunks, fragment.own_returns(chunks), strict=True):
            env, start, stop, _ = chunk
            id_, t_started = self._counted.id_of(env), self._counted.length_of(env)
            episodes.append(fragment.episode(chunk, id_, self._module_id, t_started))
            if (env, stop - 1) in fragment.info_metrics:
                self._info_metrics_of_ended[id_] = found = fragment.info_metrics[env, stop - 1]
                for name, value in found.items():
                    self._named.add(name, value)
            self._counted.add(env, stop - start, own_return, is_done=fragment.ends_own_episode(chunk))
        self._first_steps = self._num_reset_steps * done[:, -1].astype(np.int64)
        return episodes

    def _set_statistics(self, state: Mapping[str, Any]) -> None:
        rewards = state.get("reward_normalizer")  # older checkpoints have none
        check_normalizes(state["normalizer"], self.normalizer, "normalizer", "normalize_observations")
        check_normalizes(rewards, self.reward_normalizer, "reward_normalizer", "normalize_rewards")
        if rewards is not None:
            RewardNormalizer().set_state(rewards)  # an error before anything is changed
        if self.normalizer is not None:
            self.normalizer.set_state(state["normalizer"])
        if self.reward_normalizer is not None and rewards is not None:
            self.reward_normalizer.set_state(rewards)


make_env_runner = EnvRunner
"""The env runner of a config."""
