"""The env runner: steps vector environments with a policy and returns episodes."""

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from gymnasium.spaces import Space
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from plugrad.columns import Columns
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import ConfigError, RestoreMismatchError
from plugrad.observations import model_space, row_shape, stored_space
from plugrad.policy.actions import action_converter, random_action_sampler
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.policy.observations import ObservationEncoder
from plugrad.rng_streams import fresh_seed, stream
from plugrad.sampling.action_masks import ActionMasks, say_source
from plugrad.sampling.contract import is_finite, raise_nonfinite
from plugrad.sampling.environments import env_name, env_observation_space, make_vector_env, reset_seeds
from plugrad.sampling.episode_metrics import EpisodeMetrics
from plugrad.sampling.mask_sources import mask_source
from plugrad.sampling.recurrent_state import PolicyFunction, RecurrentPolicy
from plugrad.sampling.replayable_env import ReplayableEnv
from plugrad.sampling.rollout_fragment import RolloutFragment, split_at_episode_ends
from plugrad.sampling.settings import SamplingConfig, steps_per_env
from plugrad.types import DEFAULT_MODULE_ID, Array, ModuleID


class EnvRunner:
    """Samples episodes from `config.num_envs_per_env_runner` environments that step together.

    Observations are stored as the policy saw them: float32 (images uint8), normalised if
    `config.normalize_observations`; so is the final observation of an episode. Actions are stored as the policy
    returned them. The environment gets them clipped to its bounds and shifted to its first action.

    An episode that is still running when `sample()` returns is handed out as a chunk that is not done; the next
    `sample()` continues it.

    Args:
        config: an `AlgorithmConfig`, or whatever has the settings of `SamplingConfig`.
        act: the policy, a function of observations float32 or uint8 `[N, ...]`. It returns columns
            `{column: [N, ...]}`: `"actions"`, and others that become `extra_model_outputs`.
        initial_state: of a recurrent policy, `{name: array}` for one environment at the start of an episode. The state
            is carried from step to step and recorded as columns `state_in/<name>`.
        seed: seeds the environments: the same seed and policy give the same episodes. None: from the system.
        normalizer: statistics to use in place of new ones, such as a frozen copy of another runner's.
        module_id: the module that acts; the episodes carry it.

    Raises:
        ConfigError: the environment cannot be made (`plugrad.sampling.environments.make_vector_env`).
        EnvContractError: by `sample()`, if an environment breaks Gymnasium's contract (`plugrad.sampling.contract`), or
            gives a NaN or infinite observation or reward.
    """

    def __init__(
        self,
        *,
        config: SamplingConfig,
        act: PolicyFunction,
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
            vectorization_mode=config.vectorization_mode,
            frame_stack=config.frame_stack,
        )
        self._env_name = env_name(config.env)
        autoreset = self._envs.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
        self._num_reset_steps = int(autoreset)
        self._policy = RecurrentPolicy(act, initial_state or {}, self.num_envs, next_step_autoreset=autoreset)
        self._to_env = action_converter(self._envs.single_action_space)
        space = model_space(self.env_observation_space)
        if normalizer is None and config.normalize_observations:
            normalizer = ObservationNormalizer.of_space(space)
        rows = stored_space(self._envs.single_observation_space)
        self._encoder = ObservationEncoder(rows, rows, normalizer)
        self.observation_space: Space[Any] = model_space(space, normalized=normalizer is not None)
        self._module_id = module_id
        self._metrics = EpisodeMetrics(self.num_envs)
        self._observations: Array | None = None
        self._masks: ActionMasks | None = None
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
        """The observation space of one environment, before observations are flattened and scaled."""
        envs = self._replayable_envs()
        return env_observation_space(envs[0].env) if envs else self._envs.single_observation_space

    @property
    def action_space(self) -> Space[Any]:
        """The action space of one environment."""
        return self._envs.single_action_space

    @property
    def num_envs(self) -> int:
        """The number of environments that step together."""
        return self._envs.num_envs

    @property
    def total_steps(self) -> int:
        """Environment steps sampled so far, including those before a restored state."""
        return self._metrics.total_steps

    @property
    def num_episodes_begun(self) -> int:
        """Episodes begun so far. The `id_` of an episode is its number, from 1, in the order of beginning."""
        return self._metrics.num_episodes_begun

    @property
    def fragment_length(self) -> int:
        """Steps per environment in one `sample()`: see `steps_per_env`."""
        return steps_per_env(self.config)

    @property
    def finished_episodes(self) -> list[tuple[float, int]]:
        """`(return, length)` of the last episodes that finished in the last `sample()`, oldest first, at most 20."""
        return self._metrics.finished_in_last_sample

    def reset(self, seed: int | None = None) -> None:
        """Drop running episodes: the next `sample()` begins new ones in all environments.

        Statistics of observations and counters stay.

        Args:
            seed: for the environments; None: from the system.
        """
        self._seed = seed
        self._schedule_reset(() if seed is None else (seed,))

    def sample(
        self, num_steps_per_env: int | None = None, *, random_actions: bool = False
    ) -> list[SingleAgentEpisode]:
        """Step every environment a number of times.

        Args:
            num_steps_per_env: steps of each environment, >= 1; None: `fragment_length`.
            random_actions: draw actions from the action space, not from the policy. The episodes then have no other
                columns of the policy than its recurrent states.

        Returns:
            Whole episodes and chunks: first those that ended, in the order of ending, then those that are still
            running. Chunks of one episode share their `id_`. With `vectorization_mode="vector_entry_point"` a step
            that only resets an environment is part of no episode, so that there are fewer steps.

        Raises:
            ConfigError: fewer than 1 step.
            EnvContractError: see the class.
        """
        num_steps = self.fragment_length if num_steps_per_env is None else num_steps_per_env
        if num_steps < 1:
            raise ConfigError(f"a fragment has at least 1 step per environment, asked for {num_steps}")
        observations = self._reset_envs() if self._observations is None else self._observations
        fragment = RolloutFragment(observations, num_steps)
        policy = self._random_policy() if random_actions else self._policy
        for t in range(num_steps):
            observations = self._step(policy, observations, fragment, t)
        self._observations = observations
        if not is_finite(fragment.rewards):
            raise_nonfinite(self._env_name, "rewards", fragment.rewards)
        return self._make_episodes(fragment)

    def get_metrics(self) -> dict[str, float]:
        """Counts of the last `sample()`, and means over the last 20 finished episodes.

        Returns:
            `num_env_steps_sampled` and `num_episodes` (finished ones) of the last sample. `episode_return_mean`,
            `episode_return_min`, `episode_return_max` and `episode_len_mean` are of whole episodes, also of those that
            were handed out in chunks, and absent until an episode has finished.
        """
        return self._metrics.get_metrics()

    def get_state(self) -> dict[str, Any]:
        """The state for `set_state`: counters, metrics, statistics of observations and running episodes.

        Returns:
            A dict of arrays and plain values. Running episodes are saved as seeds and actions under `running`. It is
            None where they cannot be replayed: for a vectorised environment (`"vector_entry_point"`), and if one has
            more than `replayable_env.MAX_ACTIONS` steps. Call `truncate()` after saving such a state.
        """
        return {
            **self._metrics.get_state(),
            "normalizer": self.normalizer.get_state() if self.normalizer else None,
            "running": self._get_running_state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of `get_state`, in the middle of the running episodes.

        They are replayed from their seeds and actions, and compared with the saved observations. An environment that
        does not repeat itself begins a new episode, with a warning. If the state holds no running episodes, or those of
        another number of environments, new ones begin everywhere, seeded by the runner's seed and `total_steps`.

        Raises:
            RestoreMismatchError: the state has statistics of observations and this runner does not normalise,
                or the other way round, or they have another shape. Nothing was changed.
        """
        self._set_normalizer_state(state["normalizer"])
        self._metrics.set_state(state)
        self._restart_all()
        running = state["running"]
        shape = (len(self._replayable_envs()), *row_shape(self.observation_space))
        if running is not None and running["observations"].shape == shape:
            self._set_running_state(running)

    def truncate(self) -> None:
        """Drop running episodes that `get_state` cannot hold, as a runner does that is restored from that state.

        So a run that saves and goes on equals one that is resumed from the save.
        """
        if self._observations is not None and self._get_running_state() is None:
            self._restart_all()

    def close(self) -> None:
        """Close the environments; calling it again does nothing."""
        self._envs.close()

    # --- stepping -----------------------------------------------------------------------------------------------

    def _schedule_reset(self, entropy: tuple[int, ...]) -> None:
        # Reset only when needed: a runner that was restored and not used equals the one that was saved.
        self._entropy = entropy
        self._observations = None

    def _restart_all(self) -> None:
        self._schedule_reset(() if self._seed is None else (self._seed, self.total_steps))

    def _reset_envs(self) -> Array:
        try:
            raw, infos = self._envs.reset(seed=reset_seeds(self._envs, self._entropy))
        except (TypeError, ValueError, AttributeError):
            self._raise_contract_errors()
            raise
        self._first_steps = np.zeros(self.num_envs, np.int64)
        for env in range(self.num_envs):
            self._metrics.begin(env)
        self._policy.reset()
        self._check_and_count(raw)
        self._begin_masks(infos)
        return self._encoder.rows(raw)

    def _begin_masks(self, infos: Mapping[str, Any]) -> None:
        """Take the masks of the first observations, if there are any."""
        if self._masks is None and Columns.ACTION_MASK in infos:
            self._masks = self._make_masks()
        if self._masks is not None:
            self._masks.begin(infos)

    def _make_masks(self) -> ActionMasks:
        say_source(self._env_name, mask_source(self._replayable_envs()))
        return ActionMasks(self._env_name, self._envs)

    def _random_policy(self) -> PolicyFunction:
        # The steps so far name the stream: it needs no place in the state.
        seed = fresh_seed() if self._seed is None else self._seed
        rng = stream(seed, "random_actions", str(self.total_steps))
        return partial(
            self._policy.with_actions, random_action_sampler(self.action_space, self.num_envs, rng)
        )

    def _step(self, policy: PolicyFunction, observations: Array, fragment: RolloutFragment, t: int) -> Array:
        masks = self._masks
        columns = policy(observations) if masks is None else policy(observations, action_mask=masks.current)
        actions = self._to_env(columns[Columns.ACTIONS])
        try:
            raw, rewards, terminated, truncated, infos = self._envs.step(actions)
        except (TypeError, ValueError, AttributeError):
            self._raise_contract_errors()
            raise
        self._check_and_count(raw)
        if "final_obs" in infos:  # reset in the same step: `raw` is what the next episode begins with
            self._write_final_observations(fragment, t, infos)
        if masks is not None:
            columns = {**columns, **masks.step(infos, terminated, truncated)}
        self._policy.reset_ended(terminated | truncated)
        observations = self._encoder.rows(raw)
        fragment.write(t, columns, rewards, terminated, truncated, observations)
        return observations

    def _write_final_observations(
        self, fragment: RolloutFragment, t: int, infos: Mapping[str, Array]
    ) -> None:
        ended = np.flatnonzero(infos["_final_obs"])
        raw = np.stack(infos["final_obs"][ended].tolist())
        self._check_and_count(raw)
        for env, observation in zip(ended.tolist(), self._encoder.rows(raw), strict=True):
            fragment.write_final_observation(env, t, observation)

    def _check_and_count(self, raw: Array) -> None:
        """Refuse observations that are not finite, and add the others to the statistics."""
        if not is_finite(raw):
            raise_nonfinite(self._env_name, "observations", raw)
        if self.normalizer is not None:
            self.normalizer.update(raw)

    def _make_episodes(self, fragment: RolloutFragment) -> list[SingleAgentEpisode]:
        episodes = []
        self._metrics.begin_sample()
        for chunk in split_at_episode_ends(
            fragment.done, self._first_steps, num_reset_steps=self._num_reset_steps
        ):
            episodes.append(fragment.episode(chunk, self._metrics.id_of(chunk.env), self._module_id))
            self._metrics.add(chunk.env, episodes[-1])
        self._first_steps = self._num_reset_steps * fragment.done[:, -1].astype(np.int64)
        return episodes

    def _raise_contract_errors(self) -> None:
        """Raise `EnvContractError` if an environment's last answer is why they could not be stacked."""
        for env in self._replayable_envs():
            env.check_last_answers()

    # --- state --------------------------------------------------------------------------------------------------

    def _replayable_envs(self) -> list[ReplayableEnv]:
        envs = self._envs.envs if isinstance(self._envs, SyncVectorEnv) else []
        return [env for env in envs if isinstance(env, ReplayableEnv)]

    def _get_running_state(self) -> dict[str, Any] | None:
        environments = {str(i): env.get_state() for i, env in enumerate(self._replayable_envs())}
        too_long = any(state["actions"] is None for state in environments.values())
        if self._observations is None or not environments or too_long:
            return None
        return {
            **self._metrics.get_running_state(),
            "observations": self._observations.copy(),
            **({} if self._masks is None else {Columns.ACTION_MASK: self._masks.current.copy()}),
            "policy": self._policy.get_state(),
            "environments": environments,
        }

    def _set_running_state(self, running: Mapping[str, Any]) -> None:
        self._metrics.set_running_state(running)
        self._policy.set_state(running.get("policy", {}))
        observations = np.array(running["observations"])
        for i, env in enumerate(self._replayable_envs()):
            raw = env.set_state(running["environments"][str(i)])
            if raw is None or not self._is_repeated(i, env, raw, running):
                observations[i] = self._restart(i, env)
        self._masks = self._masks_of_replayed()
        self._first_steps = np.zeros(self.num_envs, np.int64)
        self._observations = observations

    def _masks_of_replayed(self) -> ActionMasks | None:
        envs = self._replayable_envs()
        infos = [env.last_info for env in envs]
        masks = self._make_masks() if any(Columns.ACTION_MASK in info for info in infos) else None
        if masks is not None:
            masks.begin_replayed(infos, [env.num_steps for env in envs])
        return masks

    def _is_repeated(self, index: int, env: ReplayableEnv, raw: Array, running: Mapping[str, Any]) -> bool:
        """Whether a replayed environment shows what it showed when it was saved."""
        is_same = np.array_equal(self._encoder.rows(raw[None])[0], running["observations"][index])
        if Columns.ACTION_MASK not in running:
            return is_same
        mask = np.asarray(env.last_info.get(Columns.ACTION_MASK))
        return is_same and np.array_equal(mask, running[Columns.ACTION_MASK][index])

    def _restart(self, index: int, env: ReplayableEnv) -> Array:
        warnings.warn(
            f"environment {index} did not repeat its running episode from the same seed and actions: "
            "it begins a new one; this run may differ from one without interruption",
            stacklevel=4,
        )
        raw = np.asarray(env.reset()[0])[None]
        self._metrics.begin(index)
        self._policy.reset_one(index)
        self._check_and_count(raw)
        return np.asarray(self._encoder.rows(raw)[0])

    def _set_normalizer_state(self, state: Mapping[str, Any] | None) -> None:
        if (state is None) != (self.normalizer is None):
            saved, here = ("without", "with") if state is None else ("with", "without")
            raise RestoreMismatchError(
                f"the state is of a run {saved} normalize_observations, this runner is {here} it; "
                f"set normalize_observations={state is not None}",
                **{"missing" if state is None else "unexpected": ["normalizer"]},
            )
        if self.normalizer is not None and state is not None:
            self.normalizer.set_state(state)
