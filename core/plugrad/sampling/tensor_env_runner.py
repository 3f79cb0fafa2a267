"""The env runner of environments of tensors: it makes batches, not episodes, and nothing passes numpy."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import index
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space

from plugrad.batch import MultiAgentBatch
from plugrad.columns import Columns
from plugrad.config import Config
from plugrad.config.sampling_settings import tensors_refused
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import ConfigError
from plugrad.observations import model_space
from plugrad.policy.actions import random_action_sampler
from plugrad.policy.normalization import ObservationNormalizer, check_normalizes
from plugrad.sampling.base_env_runner import BaseEnvRunner
from plugrad.sampling.env_calls import EnvCall
from plugrad.sampling.episode_metrics import EpisodeMetrics
from plugrad.sampling.named_envs import env_name
from plugrad.sampling.tensor_envs import Stepped, TensorEnvs, Tensors
from plugrad.sampling.tensor_statistics import TensorStatistics
from plugrad.sampling.vectorization import check_fits_settings, make_tensor_env
from plugrad.sampling.watched_episodes import EpisodeNotifier
from plugrad.types import DEFAULT_MODULE_ID, Array, ModuleID, Tensor

Steps = dict[ModuleID, dict[str, Tensor]]
"""`{module_id: {column: [T, N, ...]}}`: T steps of N environments in time order, as `Columns` names them.

`NEXT_OBS` has what each step led to, an episode's last observation too. Where environments reset in the step after an
end, `LOSS_MASK` is False in that step.
"""
Policy = Callable[[Tensor], Mapping[str, Tensor]]


class TensorSample(NamedTuple):
    """One sample.

    Args:
        steps: `{column: [T, N, ...]}`, see `Steps`.
        begins: whether it began new episodes everywhere.
        num_env_steps: environment steps in it, without those that only reset.
        module_id: the module that acted.
    """

    steps: Mapping[str, Tensor]
    begins: bool
    num_env_steps: int
    module_id: ModuleID = DEFAULT_MODULE_ID

    def episodes(self, to_numpy: Callable[[Tensor], Array]) -> list[SingleAgentEpisode]:
        """The same steps as chunks of episodes, environment by environment, for where arrays are needed.

        Args:
            to_numpy: the values of a tensor.

        Returns:
            Chunks without an `id_`, of at least one step.
        """
        arrays = {column: to_numpy(each) for column, each in self.steps.items()}
        ended = arrays[Columns.TERMINATEDS] | arrays[Columns.TRUNCATEDS]
        counts = arrays.pop(Columns.LOSS_MASK, np.ones_like(ended))
        found = []
        for env in range(ended.shape[1]):
            own = {column: each[:, env] for column, each in arrays.items()}
            lasts = [*np.flatnonzero(ended[:-1, env]), len(ended) - 1]
            for first, last in zip([0, *(n + 1 for n in lasts)], lasts, strict=False):
                if chunk := list(np.flatnonzero(counts[first : last + 1, env]) + first):
                    rows = {column: each[chunk] for column, each in own.items()}
                    led_to = rows.pop(Columns.NEXT_OBS)[-1:]
                    found.append(
                        SingleAgentEpisode(
                            observations=np.concatenate([rows.pop(Columns.OBS), led_to]),
                            actions=rows.pop(Columns.ACTIONS),
                            rewards=rows.pop(Columns.REWARDS),
                            terminated=bool(rows.pop(Columns.TERMINATEDS)[-1]),
                            truncated=bool(rows.pop(Columns.TRUNCATEDS)[-1]),
                            extra_model_outputs=rows,
                            module_id=self.module_id,
                        )
                    )
        return found


class TensorEnvRunner(BaseEnvRunner[SingleAgentEpisode]):
    """Samples steps from `config.num_envs_per_env_runner` environments of tensors.

    The host learns a handful of numbers from each sample: how many episodes ended, and their returns.

    Args:
        config: the settings.
        policy_of_sample: `(number of steps) -> policy`, asked once per sample. The policy is a function of observations
            `[N, ...]` that returns columns, `{column: [N, ...]}`.
        connect: makes the rows of an update of steps.
        tensors: of the learner.
        seed: seeds the environments. None: from the system.
        normalizer: statistics of `normalize_observations` to use in place of new ones.
        module_id: the module that acts.

    Attributes:
        tensors: see above.
        module_id: see above.

    Raises:
        ConfigError: see `TensorEnvs`, or a setting is for arrays of numpy.
        SpaceMismatchError: the settings have spaces, and the environment's do not fit them.
        EnvContractError: by `sample()`, see `TensorEnvs`.
    """

    def __init__(
        self,
        *,
        config: Config,
        policy_of_sample: Callable[[int], Policy],
        connect: Callable[[Steps], Mapping[ModuleID, Mapping[str, Tensor]]],
        tensors: Tensors,
        seed: int | None = None,
        normalizer: ObservationNormalizer | None = None,
        module_id: ModuleID = DEFAULT_MODULE_ID,
    ) -> None:
        _check_settings(config)
        self.config = config
        self._policy_of_sample, self._connect, self.tensors = policy_of_sample, connect, tensors
        self._envs = self._make_envs()
        if normalizer is None and config.normalize_observations:
            normalizer = ObservationNormalizer.of_space(self._envs.observation_space)
        self._statistics = None if normalizer is None else TensorStatistics(normalizer, tensors)
        self.observation_space: Space[Any] = model_space(
            self._envs.observation_space, normalized=normalizer is not None
        )
        check_fits_settings(config, self._envs, self.observation_space)
        self.module_id = module_id
        self._account = tensors.as_program(self._account_of)
        self._counted, self._means = EpisodeMetrics(0), dict[str, float]()
        self._samples: list[TensorSample] = []
        self._running: dict[str, Tensor] | None = None
        self.reset(seed)

    reward_normalizer = None
    envs: Sequence[Any] = ()
    """Empty: they are one object."""

    @property
    def normalizer(self) -> ObservationNormalizer | None:
        """Has the present statistics of the observations; None without `normalize_observations`."""
        return None if self._statistics is None else self._statistics.normalizer

    @property
    def normalizers(self) -> dict[ModuleID, ObservationNormalizer]:
        """`normalizer` under the id of the module that acts; empty without one."""
        return {} if self.normalizer is None else {self.module_id: self.normalizer}

    @normalizers.setter
    def normalizers(self, normalizers: Mapping[ModuleID, ObservationNormalizer]) -> None:
        if self._statistics is not None:
            self._statistics.normalizer = normalizers[self.module_id]

    @property
    def env_observation_space(self) -> Space[Any]:
        """The observation space of one environment."""
        return self._envs.observation_space

    @property
    def action_space(self) -> Space[Any]:
        """The action space of one environment."""
        return self._envs.action_space

    @property
    def num_envs(self) -> int:
        """The number of environments that step together."""
        return self._envs.num_envs

    def take_batch(self) -> MultiAgentBatch:
        """The rows of all samples since the last call, see `connected`."""
        return self.connected(self.take_samples())

    def connected(self, samples: Sequence[TensorSample]) -> MultiAgentBatch:
        """What the learner's connectors make of the steps of samples.

        Samples stand beside each other, as if other environments had made the second one: its first step is not the
        one after the last of the first, as chunks of an episode are apart for the connectors.

        Args:
            samples: of this runner.

        Returns:
            `{module_id: {column: tensor [B, ...]}}`.

        Raises:
            ConfigError: there are none, or they have different numbers of steps.
        """
        ops, parts = self.tensors.ops, [each.steps for each in samples]
        if len(lengths := {int(ops.shape(each[Columns.REWARDS])[0]) for each in parts}) != 1:
            raise ConfigError(
                f"a batch is of samples of one length, at least one; found {sorted(lengths) or 'none'}: call sample() "
                "with the same num_steps_per_env"
            )
        with self.tensors.computing():
            steps = {column: ops.concat([each[column] for each in parts], 1) for column in parts[0]}
            rows = self._connect({self.module_id: steps})
        return MultiAgentBatch(rows, sum(each.num_env_steps for each in samples))

    def take_samples(self) -> list[TensorSample]:
        """The samples since the last call of this or of `take_batch`, as they are."""
        samples, self._samples = self._samples, []
        return samples

    def _sample(self, num_steps: int, random_actions: bool) -> list[SingleAgentEpisode]:
        """Step all; the list is empty: `take_batch` has the steps."""
        make = self._random_policy if random_actions else self._policy_of_sample
        ops, begins, taken = self.tensors.ops, self._running is None, list[dict[str, Tensor]]()
        with self.tensors.computing():
            policy = make(num_steps)
            statistics = {} if self._statistics is None else self._statistics.begin()
            running = self._begin(statistics) if begins else {**(self._running or {}), **statistics}
            for _ in range(num_steps):
                running, step = self._step(policy, running)
                taken.append(step)
            steps = {column: ops.stack([each[column] for each in taken]) for column in taken[0]}
            number = self._count(steps.pop(_RETURNS), steps.pop(_LENGTHS), steps)
        self._running = running
        if self._statistics is not None:
            self._statistics.end(running)
        self._samples.append(TensorSample(steps, begins, number, self.module_id))
        return []

    def _random_policy(self, num_steps: int) -> Policy:
        """Draws the actions that an `EnvRunner` would draw, all of a sample in one copy to the device."""
        draw = random_action_sampler(self.action_space, self.num_envs, self._random_actions_stream())
        drawn = self.tensors.make(Columns.ACTIONS, np.stack([draw() for _ in range(num_steps)]))
        actions = (drawn[t] for t in range(num_steps))
        return lambda observations: {Columns.ACTIONS: next(actions)}

    def _step(
        self, policy: Policy, running: dict[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Act in all environments; returns what goes on, and the columns of this step."""
        acted = policy(running[Columns.OBS])
        stepped = self._envs.step(acted[Columns.ACTIONS])
        goes_on, step = self._account(running, stepped)
        return goes_on, {**acted, **step}

    def _account_of(
        self, running: dict[str, Tensor], stepped: Stepped
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What goes on after a step, and its columns without the policy's."""
        ops = self.tensors.ops
        ended = ops.logical_or(stepped.terminated, stepped.truncated)
        returns, lengths = running[_RETURNS] + stepped.rewards, running[_LENGTHS] + 1.0
        statistics, observations, led_to = self._seen(running, stepped, ended)
        step = {
            Columns.OBS: running[Columns.OBS],
            Columns.NEXT_OBS: led_to,
            Columns.REWARDS: stepped.rewards,
            Columns.TERMINATEDS: stepped.terminated,
            Columns.TRUNCATEDS: stepped.truncated,
        }
        if not self._envs.resets_in_same_step:  # the step after an end only resets: it counts as none
            step[Columns.LOSS_MASK] = counts = ops.logical_not(running[Columns.TRUNCATEDS])
            returns, lengths = (ops.where(counts, each, ops.zeros_like(each)) for each in (returns, lengths))
        nothing = ops.zeros_like(returns)
        goes_on = {
            **statistics,
            Columns.OBS: observations,
            Columns.TRUNCATEDS: ended,
            _RETURNS: ops.where(ended, nothing, returns),
            _LENGTHS: ops.where(ended, nothing, lengths),
        }
        return goes_on, {**step, _RETURNS: returns, _LENGTHS: lengths}

    def _seen(
        self, running: Mapping[str, Tensor], stepped: Stepped, ended: Tensor
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """The statistics with the observations of a step, and these as the policy sees them."""
        if self._statistics is None:
            return {}, stepped.observations, stepped.led_to
        ops, rows = self.tensors.ops, stepped.observations
        if not self._envs.resets_in_same_step:
            statistics = self._statistics.count(running, rows)
            rows = self._statistics.normalize(statistics, rows)
            return statistics, rows, rows
        counts = ops.concat([ops.ones_like(ended), ended])  # those with which episodes end, too
        statistics = self._statistics.count(running, ops.concat([rows, stepped.led_to]), counts)
        seen, led_to = (self._statistics.normalize(statistics, each) for each in (rows, stepped.led_to))
        return statistics, seen, led_to

    def _count(self, returns: Tensor, lengths: Tensor, steps: Mapping[str, Tensor]) -> int:
        """Read counts of a sample and the returns of the episodes that ended in it: one copy from the device.

        Returns the number of its environment steps.
        """
        ops = self.tensors.ops
        ended = ops.logical_or(steps[Columns.TERMINATEDS], steps[Columns.TRUNCATEDS])
        counts = steps.get(Columns.LOSS_MASK, ops.ones_like(ended))
        nothing, far = ops.zeros_like(returns), float("inf") * ops.ones_like(returns)
        numbers = [
            # Not those that count: above 2**24 not every whole number is a float32.
            ops.sum(ops.cast(ops.logical_not(counts), "float32")),
            ops.sum(ops.cast(ended, "float32")),
            ops.sum(ops.where(ended, returns, nothing)),
            ops.min(ops.where(ended, returns, far)),
            ops.max(ops.where(ended, returns, -far)),
            ops.sum(ops.where(ended, lengths, nothing)),
        ]
        num_resets, num_ended, total, least, most, length = self.tensors.to_numpy(ops.stack(numbers)).tolist()
        number = reduce(int.__mul__, map(int, ops.shape(ended))) - int(num_resets)
        self._counted.begin_sample()
        self._counted.merge(number, int(num_ended), ())
        self._counted.num_episodes_begun += int(num_ended)
        if num_ended:
            self._means = {
                "episode_return_mean": total / num_ended,
                "episode_return_min": least,
                "episode_return_max": most,
                "episode_len_mean": length / num_ended,
            }
        return number

    def _begin(self, statistics: dict[str, Tensor]) -> dict[str, Tensor]:
        ops = self.tensors.ops
        observations = self._envs.reset(self._entropy)
        if self._statistics is not None:
            statistics = self._statistics.count(statistics, observations)
            observations = self._statistics.normalize(statistics, observations)
        self._counted.num_episodes_begun += self.num_envs
        nothing = ops.zeros((self.num_envs,))
        return {
            **statistics,
            Columns.OBS: observations,
            Columns.TRUNCATEDS: ops.cast(nothing, "bool"),
            _RETURNS: nothing,
            _LENGTHS: nothing,
        }

    def get_metrics(self) -> dict[str, float]:
        """Counts of the last `sample()`, and returns and lengths of the episodes that ended in it.

        Returns:
            As `EnvRunner.get_metrics`; where no episode ended, means are those of the last sample in which one did.
        """
        return {**self._counted.get_metrics(), **self._means}

    def get_state(self) -> dict[str, Any]:
        """The state for `set_state`, as that of an `EnvRunner` without running episodes: they are not replayed."""
        return {
            **self._counted.get_state(),
            "normalizer": None if self.normalizer is None else self.normalizer.get_state(),
            "reward_normalizer": None,
            "running": None,
            **({"num_restarts": self._num_restarts} if self._num_restarts else {}),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of `get_state`, or of an `EnvRunner`, with new episodes everywhere."""
        check_normalizes(state["normalizer"], self.normalizer, "normalizer", "normalize_observations")
        if self.normalizer is not None:
            self.normalizer.set_state(state["normalizer"])
        self._counted.set_state(state)
        self._num_restarts = index(state.get("num_restarts", 0))
        self._samples.clear()
        self._restart_all()

    def truncate(self) -> None:
        """Drop the running episodes, as a runner that is restored from `get_state` does."""
        self._restart_all()

    def close(self) -> None:
        """Close the environments; calling it again does nothing."""
        self._envs.close()

    def _notify_of_steps(self, notifier: EpisodeNotifier) -> None:
        raise tensors_refused("there are no episodes that a listener could hear of", 'take "sync"')

    def _call_envs(self, call: EnvCall) -> list[Any]:
        return [call.run(self._envs.env, self._envs.name)]

    def _make_envs_anew(self) -> None:
        self._envs.close()
        self._envs = self._make_envs()

    def _make_envs(self) -> TensorEnvs:
        return TensorEnvs(make_tensor_env(self.config), name=env_name(self.config.env), tensors=self.tensors)

    def _schedule_reset(self, entropy: tuple[int, ...]) -> None:
        self._entropy, self._running = entropy, None
        self._samples.clear()


_RETURNS, _LENGTHS = "episode_returns", "episode_lengths"


def _check_settings(config: Config) -> None:
    for name, info in type(config).fields().items():
        if info.of_arrays and (value := getattr(config, name)) != info.make_default():
            raise ConfigError(
                f'{name}={value!r} is for arrays of numpy, and vectorization_mode="tensors" has none: leave it out, '
                'compute it in the vector environment, or take vectorization_mode="vector_entry_point"',
                field=name,
            )
