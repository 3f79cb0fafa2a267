"""The steps of one `sample()` as arrays `[N, T, ...]` over environments and time, split into episodes at its end.

The steps of one environment lie together, so that the arrays of an episode are views. Only a final observation, which
is not the next episode's first one, needs a copy.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from plugrad.columns import Columns
from plugrad.episodes import SingleAgentEpisode, unchecked_episode
from plugrad.errors import BatchError, ConfigError
from plugrad.types import DEFAULT_MODULE_ID, Array, ModuleID

MANY = 8
"""From this many chunks on, it is faster to sum the rewards of all at once."""


class Chunk(NamedTuple):
    """The steps `start <= t < stop` of environment `env`; `done` if the last of them ended the episode."""

    env: int
    start: int
    stop: int
    done: bool


class RolloutFragment:
    """`num_steps` steps of `num_envs` environments, written step by step.

    Args:
        first_observations: `[N, ...]`, what the first step acts on; gives `N`, shape and dtype.
        num_steps: `T`.

    Raises:
        ConfigError: so many steps do not fit into memory.

    Attributes:
        info_metrics: of the episodes that ended, by environment and step.
    """

    def __init__(self, first_observations: Array, num_steps: int) -> None:
        num_envs, *shape = first_observations.shape
        try:
            self.observations = np.empty((num_envs, num_steps + 1, *shape), first_observations.dtype)
        except (MemoryError, ValueError) as error:  # numpy's for more bytes than an address holds
            raise ConfigError(
                f"a sample of {num_steps} steps in each of {num_envs} environments does not fit into memory: set "
                f"rollout_fragment_length to fewer steps, or reduce train_batch_size ({error})",
                field="rollout_fragment_length",
            ) from error
        self.observations[:, 0] = first_observations
        self.rewards = np.empty((num_envs, num_steps), np.float32)
        self.terminated = np.empty((num_envs, num_steps), np.bool_)
        self.truncated = np.empty((num_envs, num_steps), np.bool_)
        self.columns: dict[str, Array] = {}
        self._final_observations: dict[tuple[int, int], Array] = {}
        self.info_metrics: dict[tuple[int, int], dict[str, float]] = {}

    def write(
        self,
        t: int,
        columns: Mapping[str, Array],
        rewards: Array,
        terminated: Array,
        truncated: Array,
        observations: Array,
    ) -> None:
        """Write step `t`: the columns of the policy and the answers of the environments.

        Args:
            t: 0, 1, ... in order.
            columns: `{column: [N, ...]}`, the same columns at every step.
            rewards: `[N]`.
            terminated: bool `[N]`.
            truncated: bool `[N]`.
            observations: `[N, ...]`, what step `t + 1` acts on.

        Raises:
            BatchError: a column does not have one row per environment.
        """
        if t == 0:
            self.columns = {name: self._empty_column(name, values) for name, values in columns.items()}
        for name, values in columns.items():
            self.columns[name][:, t] = values
        self.rewards[:, t] = rewards
        self.terminated[:, t] = terminated
        self.truncated[:, t] = truncated
        self.observations[:, t + 1] = observations

    def write_final_observation(self, env: int, t: int, observation: Array) -> None:
        """Write the final observation of an episode that step `t` ended, where `observations` has the next one's first.

        Args:
            env: index of the environment.
            t: the step.
            observation: `[...]`, as in `observations`.
        """
        self._final_observations[env, t] = observation

    def _empty_column(self, name: str, values: Array) -> Array:
        if np.ndim(values) == 0 or len(values) != len(self.rewards):
            raise BatchError(
                f"the policy returned {name!r} of shape {np.shape(values)} for {len(self.rewards)} "
                "environments; a column has one row per environment",
                column=name,
                expected=len(self.rewards),
                found=np.shape(values),
            )
        return np.empty((*self.rewards.shape, *values.shape[1:]), values.dtype)

    @property
    def done(self) -> Array:
        """Bool `[N, T]`: the steps that ended an episode."""
        return self.terminated | self.truncated

    def own_returns(self, chunks: Sequence[Chunk]) -> list[float]:
        """The sums of the environments' own rewards, also where a learner sees others.

        Args:
            chunks: which steps of which environment.

        Returns:
            One for each chunk, summed in float64.
        """
        rewards = self.columns.get(Columns.ENV_REWARDS, self.rewards)
        if len(chunks) < MANY:
            return [float(rewards[env, start:stop].sum(dtype=np.float64)) for env, start, stop, _ in chunks]
        num_steps = rewards.shape[1]
        bounds = np.array([chunk[:3] for chunk in chunks], np.int64).reshape(-1, 3)
        bounds = bounds[:, 1:] + bounds[:, :1] * num_steps
        order = np.argsort(
            bounds[:, 0]
        )  # `reduceat` also sums what is between two chunks: nothing or a reset
        sums = np.empty(len(chunks))
        flat = np.append(rewards, 0.0)  # float64. The last chunk may end behind the last reward
        sums[order] = np.add.reduceat(flat, bounds[order].ravel())[::2]
        return sums.tolist()

    def ends_own_episode(self, chunk: Chunk) -> bool:
        """Whether the environment's own episode ends with a chunk, not only a life."""
        lost = self.columns.get(Columns.LIFE_LOST)
        return chunk.done and not (lost is not None and bool(lost[chunk.env, chunk.stop - 1]))

    def episode(
        self, chunk: Chunk, id_: str, module_id: ModuleID = DEFAULT_MODULE_ID, t_started: int | None = None
    ) -> SingleAgentEpisode:
        """The episode, or part of one, that a chunk delimits.

        Args:
            chunk: which steps of which environment.
            id_: of the episode.
            module_id: the module that acted.
            t_started: how many steps of the episode came before the chunk.

        Returns:
            An episode whose arrays are views of this fragment.
        """
        env, start, stop, done = chunk
        steps, last = (env, slice(start, stop)), (env, stop - 1)
        observations = self.observations[env, start : stop + 1]
        if last in self._final_observations:
            observations = observations.copy()  # its last row is the first of the next episode
            observations[-1] = self._final_observations[last]
        columns = {name: values[steps] for name, values in self.columns.items()}
        return unchecked_episode(  # `write` has checked the lengths
            observations=observations,
            actions=columns.pop(Columns.ACTIONS),
            rewards=self.rewards[steps],
            terminated=done and bool(self.terminated[last]),
            truncated=done and bool(self.truncated[last]),
            extra_model_outputs=columns,
            id_=id_,
            t_started=t_started,
            module_id=module_id,
        )


def split_at_episode_ends(done: Array, first_steps: Array, *, num_reset_steps: int) -> Iterator[Chunk]:
    """Split the steps of a fragment where episodes end.

    Args:
        done: bool `[N, T]`: the steps that ended an episode.
        first_steps: int `[N]`: the first step of each environment that belongs to an episode (1 where step 0 only
            resets).
        num_reset_steps: how many steps after an end belong to no episode: 0 where an environment resets in the step in
            which it ends, 1 where the next step resets it and ignores its action.

    Yields:
        Ended episodes in the order in which they ended, then running ones by environment. Empty chunks are left out.
    """
    starts = first_steps.tolist()
    for t, env in np.argwhere(done.T).tolist():
        yield Chunk(env, starts[env], t + 1, True)
        starts[env] = t + 1 + num_reset_steps
    num_steps = done.shape[1]
    for env, start in enumerate(starts):
        if start < num_steps:
            yield Chunk(env, start, num_steps, False)
