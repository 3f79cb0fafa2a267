"""The env runner: steps environments with a policy and hands out what happened as episodes.

Knows Gymnasium environments through `plugrad.sampling.environments` and a policy as a function of arrays; knows
nothing of frameworks, modules or learners.

One vector step costs one call of the policy and a handful of array writes; Python works per episode only
where one ends. A fragment ends where it ends: an episode that is still going on is handed out as a chunk
that is not done, and the next `sample()` continues it.
"""

import warnings
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from gymnasium.spaces import Box, Space
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from plugrad.columns import Columns
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import ConfigError, RestoreMismatchError
from plugrad.policy.actions import action_converter
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.policy.observations import ObservationEncoder, stored_space
from plugrad.sampling.contract import is_finite, refuse_nonfinite
from plugrad.sampling.environments import (
    EnvSource,
    env_observation_space,
    make_vector_env,
    name_of,
    reset_seed,
)
from plugrad.sampling.episode_metrics import EpisodeMetrics
from plugrad.sampling.recurrent_state import Act, StatefulPolicy
from plugrad.sampling.replayable_env import ReplayableEnv
from plugrad.sampling.rollout_fragment import RolloutFragment, split_into_chunks
from plugrad.types import DEFAULT_MODULE_ID, Array, ModuleID


class SamplingConfig(Protocol):
    """The fields of a config that an env runner reads."""

    @property
    def env(self) -> EnvSource | None: ...  # noqa: D102
    @property
    def env_config(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def num_env_runners(self) -> int: ...  # noqa: D102
    @property
    def num_envs_per_env_runner(self) -> int: ...  # noqa: D102
    @property
    def rollout_fragment_length(self) -> int | None: ...  # noqa: D102
    @property
    def train_batch_size(self) -> int: ...  # noqa: D102
    @property
    def normalize_observations(self) -> bool: ...  # noqa: D102


def steps_per_env(config: SamplingConfig) -> int:
    """Steps of each environment in one sample: `rollout_fragment_length`, else its share of `train_batch_size`.

    The share is rounded up: a batch has at least `train_batch_size` steps, as RLlib's.
    """
    if config.rollout_fragment_length is not None:
        return config.rollout_fragment_length
    return -(-config.train_batch_size // num_environments(config))


def num_environments(config: SamplingConfig) -> int:
    """How many environments sample, in all env runners."""
    return max(1, config.num_env_runners) * config.num_envs_per_env_runner


class EnvRunner:
    """Samples episodes from `config.num_envs_per_env_runner` environments.

    Observations are stored as the policy saw them: float32 (images uint8), normalised if
    `config.normalize_observations`, the final observation of an episode too. Actions are stored as the
    policy gave them; the environment gets them clipped to its bounds and shifted to its first action.

    Args:
        config: see `SamplingConfig`; also `vectorization_mode` ("sync", the default, or
            "vector_entry_point") if the config has it: see `plugrad.sampling.environments.make_vector_env`.
        act: the policy; the columns that it returns beside the actions become `extra_model_outputs`.
        initial_state: of a stateful policy, `{name: array}`, for one environment at the start of an episode; the states
            are carried from step to step and recorded as `state_in/<name>` (`plugrad.sampling.recurrent_state`).
        seed: seeds the environments: same seed and policy, same episodes. None: from the system.
        normalizer: statistics to use in place of new ones, such as a frozen copy of another runner's.
        module_id: of the module that acts; the episodes say so.

    Raises:
        ConfigError: see `plugrad.sampling.environments.make_vector_env`.
        EnvContractError: by `sample()`, if an environment breaks Gymnasium's contract (`plugrad.sampling.contract`), or
            gives a NaN or infinite observation or reward.
    """

    def __init__(
        self,
        *,
        config: SamplingConfig,
        act: Act,
        initial_state: Mapping[str, Array] | None = None,
        seed: int | None = None,
        normalizer: ObservationNormalizer | None = None,
        module_id: ModuleID = DEFAULT_MODULE_ID,
    ) -> None:
        self.config = config
        self._envs = make_vector_env(
            config.env,
            config.env_config,
            num_envs=config.num_envs_per_env_runner,
            vectorization_mode=getattr(config, "vectorization_mode", "sync"),
        )
        self._name = name_of(config.env)
        self._gap = int(self._envs.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP)
        self._policy = StatefulPolicy(act, initial_state or {}, self.num_envs, gap=bool(self._gap))
        self._to_env = action_converter(self._envs.single_action_space)
        stored = stored_space(self._envs.single_observation_space)
        if normalizer is None and config.normalize_observations:
            normalizer = ObservationNormalizer(stored.shape)
        self._encoder = ObservationEncoder(stored, stored, normalizer)
        self.observation_space: Box = stored_space(stored, normalized=normalizer is not None)
        self._module_id = module_id
        self._metrics = EpisodeMetrics(self.num_envs)
        self._observations: Array | None = None
        self.reset(seed)

    @property
    def normalizer(self) -> ObservationNormalizer | None:
        """Scales the observations that the policy sees; None: they stay as they are."""
        return self._encoder.normalizer

    @normalizer.setter
    def normalizer(self, normalizer: ObservationNormalizer | None) -> None:
        self._encoder.normalizer = normalizer

    @property
    def env_observation_space(self) -> Space[Any]:
        """The observation space of one environment, before its observations are flattened and scaled."""
        repeatable = self._replayable()
        return env_observation_space(repeatable[0].env) if repeatable else self._envs.single_observation_space

    @property
    def action_space(self) -> Space[Any]:
        """The action space of one environment."""
        return self._envs.single_action_space

    @property
    def num_envs(self) -> int:
        """How many environments step together."""
        return self._envs.num_envs

    @property
    def total_steps(self) -> int:
        """Environment steps sampled, those before the state that the runner continues included."""
        return self._metrics.total_steps

    @property
    def num_episodes_begun(self) -> int:
        """Episodes begun; the `id_` of an episode is its number, from 1, in the order of beginning."""
        return self._metrics.num_episodes_begun

    @property
    def fragment_length(self) -> int:
        """Steps per environment in one `sample()`: the configured ones or this runner's share of a batch."""
        return steps_per_env(self.config)

    def reset(self, seed: int | None = None) -> None:
        """Let the next `sample()` begin new episodes in all environments; what was going on is dropped.

        Statistics and counters stay.
        """
        self._seed = seed
        self._begin_from(() if seed is None else (seed,))

    def sample(self, num_steps_per_env: int | None = None) -> list[SingleAgentEpisode]:
        """Step every environment `num_steps_per_env` times (default `fragment_length`).

        Returns:
            Whole episodes and chunks: first what ended, in the order of ending, then what is still going
            on. Chunks of one episode share their `id_`. With `vectorization_mode="vector_entry_point"` a
            step that only resets an environment is part of no episode: there are fewer steps then.
        """
        num_steps = self.fragment_length if num_steps_per_env is None else num_steps_per_env
        if num_steps < 1:
            raise ConfigError(f"a fragment has at least 1 step per environment, asked for {num_steps}")
        observations = self._begin() if self._observations is None else self._observations
        fragment = RolloutFragment(observations, num_steps)
        for t in range(num_steps):
            observations = self._step(observations, fragment, t)
        self._observations = observations
        if not is_finite(fragment.rewards):
            refuse_nonfinite(self._name, "rewards", fragment.rewards)
        return self._cut(fragment)

    def get_metrics(self) -> dict[str, float]:
        """Counts of the last `sample()`; returns and lengths of the last 20 finished episodes.

        `num_env_steps_sampled` and `num_episodes` (finished ones); `episode_return_mean`, `_min`, `_max` and
        `episode_len_mean` are of whole episodes, also of those that were handed out in chunks, and are
        absent until an episode has finished.
        """
        return self._metrics.get_metrics()

    def get_state(self) -> dict[str, Any]:
        """All that `set_state` needs: counters, metrics, statistics, and the running episodes as actions.

        `running` is None where episodes cannot be lived through again: those of a vectorised environment
        (`"vector_entry_point"`), and if one has more than `replayable_env.MAX_ACTIONS` steps. Who saves such a state
        and goes on calls `truncate()`.
        """
        return {
            **self._metrics.get_state(),
            "normalizer": self.normalizer.get_state() if self.normalizer else None,
            "running": self._running_state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `get_state` returned, in the middle of the episodes that were going on.

        They are lived through again from their seeds and actions, and compared with where they were. Where
        an environment does not repeat itself it begins a new episode, with a warning. New ones begin
        everywhere, seeded by the runner's seed and `total_steps`, if the state holds no running episodes or those of
        another number of environments.

        Raises:
            RestoreMismatchError: the state has statistics of observations and this runner does not normalise,
                or the other way round, or of another shape. Nothing was changed.
        """
        self._restore_normalizer(state["normalizer"])
        self._metrics.set_state(state)
        self._begin_anew_everywhere()
        running = state["running"]
        shape = (len(self._replayable()), *self.observation_space.shape)
        if running is not None and running["observations"].shape == shape:
            self._continue(running)

    def truncate(self) -> None:
        """A save is a cut for running episodes that it could not hold: new ones begin, as where it is taken over.

        So a run that saves and goes on equals one that was resumed from there.
        """
        if self._observations is not None and self._running_state() is None:
            self._begin_anew_everywhere()

    def close(self) -> None:
        """Close the environments; calling it again does nothing."""
        self._envs.close()

    def _begin_from(self, entropy: tuple[int, ...]) -> None:
        # Reset only when needed: a runner that was restored and not used equals the one that was saved.
        self._entropy = entropy
        self._observations = None

    def _begin_anew_everywhere(self) -> None:
        self._begin_from(() if self._seed is None else (self._seed, self.total_steps))

    def _begin(self) -> Array:
        try:
            raw, _ = self._envs.reset(seed=reset_seed(self._envs, self._entropy))
        except (TypeError, ValueError, AttributeError):
            self._say_whose_answer()
            raise
        self._first = np.zeros(self.num_envs, np.int64)
        for env in range(self.num_envs):
            self._metrics.begin(env)
        self._policy.begin()
        self._count(raw)
        return self._stored(raw)

    def _step(self, observations: Array, fragment: RolloutFragment, t: int) -> Array:
        columns = self._policy(observations)
        actions = self._to_env(columns[Columns.ACTIONS])
        try:
            raw, rewards, terminated, truncated, infos = self._envs.step(actions)
        except (TypeError, ValueError, AttributeError):
            self._say_whose_answer()
            raise
        self._count(raw)
        if "final_obs" in infos:  # reset in the same step: `raw` is what the next episode begins with
            self._write_final(fragment, t, infos)
        self._policy.end(terminated | truncated)
        observations = self._stored(raw)
        fragment.write(t, columns, rewards, terminated, truncated, observations)
        return observations

    def _write_final(self, fragment: RolloutFragment, t: int, infos: Mapping[str, Array]) -> None:
        ended = np.flatnonzero(infos["_final_obs"])
        raw = np.stack(infos["final_obs"][ended].tolist())
        self._count(raw)
        for env, observation in zip(ended.tolist(), self._stored(raw), strict=True):
            fragment.write_final_observation(env, t, observation)

    def _count(self, raw: Array) -> None:
        """Every observation that an environment gives is looked at and goes into the statistics, once."""
        if not is_finite(raw):
            refuse_nonfinite(self._name, "observations", raw)
        if self.normalizer is not None:
            self.normalizer.update(raw)

    def _stored(self, raw: Array) -> Array:
        """Observations as the policy sees them, never the environments' own buffer."""
        return self._encoder.rows(raw)

    def _cut(self, fragment: RolloutFragment) -> list[SingleAgentEpisode]:
        episodes = []
        self._metrics.begin_sample()
        for chunk in split_into_chunks(fragment.done, self._first, gap=self._gap):
            episodes.append(fragment.episode(chunk, self._metrics.id_of(chunk.env), self._module_id))
            self._metrics.add(chunk.env, episodes[-1])
        self._first = self._gap * fragment.done[:, -1].astype(np.int64)
        return episodes

    def _say_whose_answer(self) -> None:
        """Raise `EnvContractError` if an answer of an environment is why they could not be put together."""
        for env in self._replayable():
            env.check_last_answers()

    def _replayable(self) -> list[ReplayableEnv]:
        envs = self._envs.envs if isinstance(self._envs, SyncVectorEnv) else []
        return [env for env in envs if isinstance(env, ReplayableEnv)]

    def _running_state(self) -> dict[str, Any] | None:
        environments = {str(i): env.get_state() for i, env in enumerate(self._replayable())}
        too_long = any(state["actions"] is None for state in environments.values())
        if self._observations is None or not environments or too_long:
            return None
        return {
            **self._metrics.get_running_state(),
            "observations": self._observations.copy(),
            "policy": self._policy.get_state(),
            "environments": environments,
        }

    def _continue(self, running: Mapping[str, Any]) -> None:
        self._metrics.set_running_state(running)
        self._policy.set_state(running.get("policy", {}))
        observations = np.array(running["observations"])
        for i, env in enumerate(self._replayable()):
            raw = env.set_state(running["environments"][str(i)])
            if raw is None or not np.array_equal(self._stored(raw[None])[0], observations[i]):
                observations[i] = self._begin_anew(i, env)
        self._first = np.zeros(self.num_envs, np.int64)
        self._observations = observations

    def _begin_anew(self, index: int, env: ReplayableEnv) -> Array:
        warnings.warn(
            f"environment {index} did not repeat its running episode from the same seed and actions: "
            "it begins a new one; this run may differ from one without interruption",
            stacklevel=4,
        )
        raw = np.asarray(env.reset()[0])[None]
        self._metrics.begin(index)
        self._policy.begin_one(index)
        self._count(raw)
        return np.asarray(self._stored(raw)[0])

    def _restore_normalizer(self, state: Mapping[str, Any] | None) -> None:
        if (state is None) != (self.normalizer is None):
            saved, here = ("without", "with") if state is None else ("with", "without")
            raise RestoreMismatchError(
                f"the state is of a run {saved} normalize_observations, this runner is {here} it; "
                f"set normalize_observations={state is not None}",
                **{"missing" if state is None else "unexpected": ["normalizer"]},
            )
        if self.normalizer is not None and state is not None:
            self.normalizer.set_state(state)
