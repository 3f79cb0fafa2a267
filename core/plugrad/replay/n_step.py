"""Transitions of n steps: the rows of a replay buffer, made of episodes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np

from plugrad.columns import Columns
from plugrad.episodes import MASKS, SingleAgentEpisode, concat_chunks, masks_of
from plugrad.returns import n_step_returns
from plugrad.types import Array


def transitions(episode: SingleAgentEpisode, n: int | Array, gamma: float) -> dict[str, Array]:
    """One row per step: the `n` steps from it on as one transition, fewer where the episode ends before.

    Source: Sutton and Barto (2018), "Reinforcement Learning: An Introduction", equation 7.1, without the value at the
    end, which the loss adds.

    Args:
        episode: T steps.
        n: steps per row, at least 1; an int array [T] has a number for each.
        gamma: discount per step.

    Returns:
        `obs`, `actions`; `rewards`, float32 [T], their discounted sum; `new_obs`, the observation after the last
        of them; `terminateds`, bool [T], whether the episode terminated there; `n_step`, float32 [T], their number.
        An episode with action masks also gives `action_mask`, and `new_action_mask` of `new_obs`, bool [T, choices].
    """
    steps = len(episode)
    ends = np.minimum(np.arange(steps) + n, steps)
    return {
        **_masks(episode, ends),
        Columns.OBS: episode.observations[:-1],
        Columns.ACTIONS: episode.actions,
        Columns.REWARDS: _sums(episode.rewards, gamma, n),
        Columns.NEXT_OBS: episode.observations[ends],
        Columns.TERMINATEDS: (ends == steps) & episode.terminated,
        Columns.N_STEP: (ends - np.arange(steps)).astype(np.float32),
    }


def _masks(episode: SingleAgentEpisode, ends: Array) -> dict[str, Array]:
    """The masks of the first observation of each row and of its last."""
    masks = dict(masks_of(episode))
    if Columns.NEXT_ACTION_MASK in masks:
        masks[Columns.NEXT_ACTION_MASK] = masks[Columns.NEXT_ACTION_MASK][ends - 1]
    return masks


def _sums(rewards: Array, gamma: float, n: int | Array) -> Array:
    if not isinstance(n, int):
        sums = np.zeros(len(rewards), np.float32)
        for each in np.unique(n).tolist():
            sums[n == each] = _sums(rewards, gamma, each)[n == each]
        return sums
    return rewards.astype(np.float32) if n == 1 else n_step_returns(rewards, gamma, n)


class NStepTransitions:
    """Transitions of episodes that come in chunks: the last `n - 1` steps of a running one wait for the next chunk.

    Args:
        n: steps per row; `[least, most]`: each row has a number of its own between them, both included, with equal
            probabilities. It follows from the seed, the episode and the step, so that a resumed run draws the same.
        gamma: discount per step.
        seed: of these numbers.
    """

    def __init__(self, n: int | Sequence[int], gamma: float, seed: int = 0) -> None:
        self._least, self._n = (n, n) if isinstance(n, int) else n
        self._gamma = gamma
        self._seed = seed
        self._waiting: dict[str, SingleAgentEpisode] = {}

    def __call__(
        self, chunks: Sequence[SingleAgentEpisode], *, running: Sequence[str] = ()
    ) -> dict[str, Array]:
        """The rows of one `sample()`.

        Args:
            chunks: of the sample. The steps of an episode that has none in it no longer wait, nor do those of one
                whose chunk begins later than where they end.
            running: ids of running multi-agent episodes: their agents, `<id>/<agent>`, may have no chunk in the sample.

        Returns:
            The rows, `{column: [B, ...]}`; see `transitions`.
        """
        rows, waiting = [], {}
        for chunk in chunks:
            id_ = str(chunk.id_)
            before = self._waiting.pop(id_, None)  # a lost life may begin another chunk of the same id
            found, rest = self._divide(chunk, before)
            rows.append(found)
            if rest is not None:
                waiting[id_] = rest
        prefixes = tuple(f"{id_}/" for id_ in running)
        self._waiting = {
            id_: each for id_, each in self._waiting.items() if id_.startswith(prefixes)
        } | waiting
        if len(rows) == 1:  # one environment, whose every step is a sample
            return rows[0]
        names = [name for name in rows[0] if all(name in each for each in rows)]
        return {name: np.concatenate([each[name] for each in rows]) for name in names}

    def _divide(
        self, chunk: SingleAgentEpisode, before: SingleAgentEpisode | None
    ) -> tuple[dict[str, Array], SingleAgentEpisode | None]:
        """The rows of a chunk and of the steps that waited for it, and the steps that wait now."""
        whole = joined(before, chunk) if before is not None and follows(chunk, before) else chunk
        rows = transitions(whole, self._numbers(whole), self._gamma)
        if whole.is_done or self._n == 1:
            return rows, None
        ready = max(0, len(whole) - self._n + 1)
        return {name: values[:ready] for name, values in rows.items()}, from_step(whole, ready)

    def _numbers(self, episode: SingleAgentEpisode) -> int | Array:
        """The steps of each row of an episode, by a hash: splitmix64 (Steele 2014, doi:10.1145/2660193.2660195)."""
        if self._least == self._n:
            return self._n
        first = (self._seed + (crc32(str(episode.id_).encode()) << 24) + (episode.t_started or 0)) % 2**64
        mixed = np.uint64(first) + np.arange(1, len(episode) + 1, dtype=np.uint64)
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
        span = np.uint64(self._n - self._least + 1)
        return self._least + (mixed % span).astype(np.int64)

    def get_state(self) -> dict[str, Any]:
        """The steps that wait, by episode."""
        return {
            id_: {
                "observations": each.observations,
                "actions": each.actions,
                "rewards": each.rewards,
                "t_started": each.t_started,
                **each.extra_model_outputs,
            }
            for id_, each in self._waiting.items()
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` returned."""
        self._waiting = {id_: _restored(columns, id_) for id_, columns in state.items()}


def follows(chunk: SingleAgentEpisode, before: SingleAgentEpisode) -> bool:
    """Whether a chunk begins where its episode stood; samples between two may have been lost.

    Args:
        chunk: of an episode.
        before: the steps of this episode that are known.

    Returns:
        True if it does, or if nobody said where it begins.
    """
    if chunk.t_started is None or before.t_started is None:
        return True
    return chunk.t_started == before.t_started + len(before)


def joined(waiting: SingleAgentEpisode, chunk: SingleAgentEpisode) -> SingleAgentEpisode:
    """One chunk of two, with the columns that transitions have.

    Args:
        waiting: the earlier one; steps of a checkpoint without masks wait without them.
        chunk: the later one.

    Returns:
        Their steps; it has ended if the later one has.
    """
    extra = chunk.extra_model_outputs
    kept = {name: extra[name] for name in waiting.extra_model_outputs if name in extra}
    return concat_chunks([waiting, replace(chunk, extra_model_outputs=kept)])


_STEPS = ("observations", "actions", "rewards", "t_started")


def _restored(columns: Mapping[str, Any], id_: str) -> SingleAgentEpisode:
    steps = {name: columns[name] for name in _STEPS if name in columns}
    extra = {name: values for name, values in columns.items() if name not in steps}
    return SingleAgentEpisode(**steps, extra_model_outputs=extra, id_=id_)


def from_step(
    episode: SingleAgentEpisode, first: int, columns: Collection[str] = MASKS
) -> SingleAgentEpisode:
    """A copy of the steps of an episode from one on, with the columns that transitions have.

    Args:
        episode: that is running.
        first: the first step.
        columns: those of `extra_model_outputs` that are kept.

    Returns:
        The rest.
    """
    return SingleAgentEpisode(
        observations=episode.observations[first:].copy(),  # not a view that keeps the fragment alive
        actions=episode.actions[first:].copy(),
        rewards=episode.rewards[first:].copy(),
        extra_model_outputs={
            name: values[first:].copy()
            for name, values in episode.extra_model_outputs.items()
            if name in columns
        },
        id_=episode.id_,
        t_started=None if episode.t_started is None else episode.t_started + first,
    )
