"""Hindsight experience replay: transitions of a goal, and copies of them with goals that were reached later."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from gymnasium.spaces import Space

from plugrad.columns import Columns
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import ConfigError
from plugrad.replay.n_step import NStepTransitions, follows, from_step, joined, transitions
from plugrad.spaces.kinds import is_box, named_parts
from plugrad.spaces.layout import RowPart, row_parts
from plugrad.types import Array

STRATEGIES = ("future", "final", "episode")
ACHIEVED, DESIRED, SEEN = "achieved_goal", "desired_goal", "observation"
Rows = dict[str, Array]


@dataclass(frozen=True)
class GoalSpace:
    """Where the goals are in the rows of observations.

    Args:
        achieved: the part of the goal that a state is.
        desired: the part of the goal that is pursued.
    """

    achieved: RowPart
    desired: RowPart

    @classmethod
    def of(cls, space: Space[Any] | None) -> "GoalSpace":
        """Those of a space of observations.

        Raises:
            ConfigError: it is no Dict of `observation`, `achieved_goal` and `desired_goal`, or goals are no Boxes of
                one shape.
        """
        goals = named_parts(space)
        if space is None or {*goals} != {SEEN, ACHIEVED, DESIRED}:
            raise ConfigError(
                f"hindsight needs observations that are a Dict of {SEEN!r}, {ACHIEVED!r} and {DESIRED!r}, as "
                f"Gymnasium-Robotics has them; found {space}",
                field="hindsight",
            )
        found = {key: [part for part in row_parts(space) if part.is_of([key])] for key in (ACHIEVED, DESIRED)}
        (achieved, *more), (desired, *others) = found.values()
        if more or others or not is_box(achieved.space) or achieved.space.shape != desired.space.shape:
            raise ConfigError(
                f"hindsight needs goals that are Boxes of one shape; found {goals[ACHIEVED]} for {ACHIEVED!r} and "
                f"{goals[DESIRED]} for {DESIRED!r}",
                field="hindsight",
            )
        return cls(achieved, desired)


class GoalRewards:
    """What an environment says of goals that were not pursued.

    Args:
        env: has `compute_reward(achieved_goal, desired_goal, info)`, and may have `compute_terminated` of the same
            arguments, as Gymnasium-Robotics has them. They are called with many goals at once, `[n, ...]`; if the
            answer is not one number for each, with one after the other. `info` is an empty dict, or n of them.

    Raises:
        ConfigError: the environment has no `compute_reward`.
    """

    def __init__(self, env: Any) -> None:
        if not env.has_wrapper_attr("compute_reward"):
            raise ConfigError(
                "hindsight needs an environment with compute_reward(achieved_goal, desired_goal, info); this one has "
                f"none: {env}",
                field="hindsight",
            )
        self._reward = env.get_wrapper_attr("compute_reward")
        has_ends = env.has_wrapper_attr("compute_terminated")
        self._terminated = env.get_wrapper_attr("compute_terminated") if has_ends else None

    def rewards(self, achieved: Array, desired: Array) -> Array:
        """The rewards of reaching `achieved` where `desired` is pursued, float32 [n]; both are [n, ...]."""
        return _of_all(self._reward, achieved, desired).astype(np.float32)

    def terminateds(self, achieved: Array, desired: Array) -> Array | None:
        """Whether an episode ends there, bool [n]; None if the environment does not say."""
        return None if self._terminated is None else _of_all(self._terminated, achieved, desired).astype(bool)


def _of_all(function: Callable[..., Any], achieved: Array, desired: Array) -> Array:
    number = len(achieved)
    # Of a single one, a number for all of its entries would pass for an answer. Who takes no arrays is asked below,
    # where its own errors come out.
    with suppress(TypeError, ValueError):
        if number > 1:
            found = np.asarray(function(achieved, desired, [{} for _ in range(number)]))
            if found.shape == (number,):
                return found
    pairs = zip(achieved, desired, strict=True)
    return np.array([np.asarray(function(one, goal, {})).item() for one, goal in pairs])


class HindsightTransitions(NStepTransitions):
    """Transitions of one step; when an episode has ended, also copies of its steps that pursue what it reached.

    The goals that are drawn follow from the seed and the episode, so that a resumed run draws the same.

    Args:
        strategy: which goals: "future" draws those of states after the step, "episode" those of all states that a step
            led to, "final" takes that of the last state.
        number: copies of each step; "final" makes one.
        space: of observations.
        goal_rewards: makes what computes rewards; called with the first copies.
        gamma: discount per step.
        seed: of the goals that are drawn.

    Raises:
        ConfigError: see `GoalSpace`.

    References:
        Andrychowicz et al. 2017, "Hindsight Experience Replay", arXiv:1707.01495, algorithm 1 and section 4.5.
    """

    def __init__(
        self,
        strategy: str,
        number: int,
        space: Space[Any] | None,
        goal_rewards: Callable[[], GoalRewards],
        gamma: float,
        seed: int = 0,
    ) -> None:
        super().__init__(1, gamma, seed)
        self._strategy, self._number = strategy, 1 if strategy == "final" else number
        self._goals = GoalSpace.of(space)
        self._make_rewards = goal_rewards
        self._goal_rewards: GoalRewards | None = None

    def __call__(self, chunks: Sequence[SingleAgentEpisode], *, running: Sequence[str] = ()) -> Rows:
        """See `NStepTransitions`; the steps of running episodes are kept until these end."""
        rows, waiting = [], {}
        for chunk in chunks:
            id_ = str(chunk.id_)
            before = self._waiting.pop(id_, None)
            whole = joined(before, chunk) if before is not None and follows(chunk, before) else chunk
            rows.append(transitions(chunk, 1, self._gamma))
            if whole.is_done:
                rows.append(self._relabelled(whole))
            else:
                waiting[id_] = from_step(whole, 0)
        self._waiting = waiting
        return {name: np.concatenate([each[name] for each in rows]) for name in rows[0]}

    def _relabelled(self, episode: SingleAgentEpisode) -> Rows:
        """The rows of copies of all steps, with other goals and the rewards of these."""
        steps = np.repeat(np.arange(len(episode)), self._number)
        rows = {name: each[steps] for name, each in transitions(episode, 1, self._gamma).items()}
        reached = episode.observations[1:, self._goals.achieved.start : self._goals.achieved.stop]
        goals = reached[self._drawn(episode, steps)]
        for column in (Columns.OBS, Columns.NEXT_OBS):
            rows[column][:, self._goals.desired.start : self._goals.desired.stop] = goals
        if self._goal_rewards is None:
            self._goal_rewards = self._make_rewards()
        achieved, desired = (
            each.reshape(-1, *part.shape).astype(part.space.dtype)
            for each, part in ((reached[steps], self._goals.achieved), (goals, self._goals.desired))
        )
        rows[Columns.REWARDS] = self._goal_rewards.rewards(achieved, desired)
        ends = self._goal_rewards.terminateds(achieved, desired)
        if ends is not None:
            rows[Columns.TERMINATEDS] = ends
        return rows

    def _drawn(self, episode: SingleAgentEpisode, steps: Array) -> Array:
        """The step for each copy whose state is its goal."""
        last = len(episode) - 1
        if self._strategy == "final":
            return np.full(len(steps), last)
        rng = np.random.default_rng((self._seed, crc32(str(episode.id_).encode()), episode.t_started or 0))
        return rng.integers(steps if self._strategy == "future" else 0, last, len(steps), endpoint=True)
