"""One fragment of sampling as arrays over environments and time, and how it is cut into episodes.

Knows arrays and episodes; knows nothing of environments or policies. Arrays are `[N, T, ...]`
(environment, time): the steps of one environment lie together, so that every episode is a view and
nothing is copied but a changed observation.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from plugrad.columns import Columns
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import BatchError
from plugrad.types import DEFAULT_MODULE_ID, Array, ModuleID


class Chunk(NamedTuple):
    """The steps `start <= t < stop` of environment `env`; `done` if the last of them ended the episode."""

    env: int
    start: int
    stop: int
    done: bool


class RolloutFragment:
    """Arrays for `num_steps` steps of `num_envs` environments, written step by step and cut once.

    Args:
        first_observations: `[N, ...]`, what the first step acts on; fixes `N`, shape and dtype.
        num_steps: `T`.
    """

    def __init__(self, first_observations: Array, num_steps: int) -> None:
        num_envs, *shape = first_observations.shape
        self.observations = np.empty((num_envs, num_steps + 1, *shape), first_observations.dtype)
        self.observations[:, 0] = first_observations
        self.rewards = np.empty((num_envs, num_steps), np.float32)
        self.terminated = np.empty((num_envs, num_steps), np.bool_)
        self.truncated = np.empty((num_envs, num_steps), np.bool_)
        self.columns: dict[str, Array] = {}
        self._final_observations: dict[tuple[int, int], Array] = {}

    def write(
        self,
        t: int,
        columns: Mapping[str, Array],
        rewards: Array,
        terminated: Array,
        truncated: Array,
        observations: Array,
    ) -> None:
        """Write step `t`: what the policy said and what the environments answered.

        Args:
            t: 0, 1, ... in order.
            columns: `{column: [N, ...]}`, the same columns at every step.
            rewards: `[N]`.
            terminated: `[N]`.
            truncated: `[N]`.
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
        """What the last step of an episode led to, where `observations` are already those of the next."""
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
        """`[N, T]`, bool: the steps that ended an episode."""
        return self.terminated | self.truncated

    def episode(self, chunk: Chunk, id_: str, module_id: ModuleID = DEFAULT_MODULE_ID) -> SingleAgentEpisode:
        """The episode, or the part of one, that `chunk` says; `module_id` acted."""
        env, start, stop, done = chunk
        observations = self.observations[env, start : stop + 1]
        if (env, stop - 1) in self._final_observations:
            observations = observations.copy()  # its last row is the first of the next episode
            observations[-1] = self._final_observations[env, stop - 1]
        columns = {name: values[env, start:stop] for name, values in self.columns.items()}
        return SingleAgentEpisode(
            observations=observations,
            actions=columns.pop(Columns.ACTIONS),
            rewards=self.rewards[env, start:stop],
            terminated=done and bool(self.terminated[env, stop - 1]),
            truncated=done and bool(self.truncated[env, stop - 1]),
            extra_model_outputs=columns,
            id_=id_,
            module_id=module_id,
        )


def split_into_chunks(done: Array, first: Array, *, gap: int) -> Iterator[Chunk]:
    """MinibatchSpec the steps of a fragment where episodes end.

    Args:
        done: `[N, T]`, bool: the steps that ended an episode.
        first: `[N]`, int: the first step of each environment that is one (1 where step 0 only resets).
        gap: how many steps after an end are not steps: 0 where an environment resets in the step in
            which it ends, 1 where the next step resets it and its action is ignored.

    Yields:
        Ended episodes in the order in which they ended, then what is still going on, by environment.
        Empty chunks are left out.
    """
    start = np.array(first)
    for t, env in np.argwhere(done.T).tolist():
        yield Chunk(env, int(start[env]), t + 1, True)
        start[env] = t + 1 + gap
    for env, begin in enumerate(start.tolist()):
        if begin < done.shape[1]:
            yield Chunk(env, begin, done.shape[1], False)
