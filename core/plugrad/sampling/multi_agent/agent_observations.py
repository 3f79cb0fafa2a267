"""Turns the observations of one module's agents into rows that it reads, and into action masks."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from gymnasium.spaces import Space

from plugrad.action_masks import as_mask, choice_sizes, expected, forbids_all
from plugrad.columns import Columns
from plugrad.errors import EnvContractError
from plugrad.observations import flat_rows
from plugrad.observations.rows import cast_exactly, nonfinite
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.policy.observations import ObservationEncoder, split_action_mask
from plugrad.sampling.env_checker import WrongObservationError, describe, nonfinite_part
from plugrad.sampling.flat_observations import RowWriter
from plugrad.sampling.multi_agent.agent_track import AgentTrack
from plugrad.spaces.kinds import is_box
from plugrad.spaces.layout import flat_space, stored_space
from plugrad.spaces.structure import from_leaves, leaves, structure_leaves
from plugrad.types import Array


class AgentObservations:
    """Checks and encodes the observations and masks of the agents of one module.

    Args:
        space: of an agent's observations, without action masks.
        action_space: of its actions.
        normalizer: scales the rows; None: they stay as they are.

    Attributes:
        has_masks: whether the agents have action masks; None before their first observations.
    """

    def __init__(
        self, space: Space[Any], action_space: Space[Any], normalizer: ObservationNormalizer | None
    ) -> None:
        self._space, self._action_space = space, action_space
        rows = stored_space(flat_space(space))
        self._encoder = ObservationEncoder(rows, rows, normalizer)
        self.has_masks: bool | None = None

    @property
    def normalizer(self) -> ObservationNormalizer | None:
        """Scales the observations that the policy sees."""
        return self._encoder.normalizer

    @normalizer.setter
    def normalizer(self, normalizer: ObservationNormalizer | None) -> None:
        self._encoder.normalizer = normalizer

    def split(self, observation: Any, info: Any) -> tuple[Any, Any]:
        """Separate an observation from its action mask.

        Args:
            observation: as the environment gave it.
            info: of the agent.

        Returns:
            `(observation, mask)`; the mask may be None.
        """
        mask = None
        if type(observation) is not np.ndarray:
            observation, mask = split_action_mask(self._space, observation)
        if mask is None and info and isinstance(info, Mapping):
            mask = info.get(Columns.ACTION_MASK)
        return observation, mask

    def rows(self, tracks: Sequence[AgentTrack], observations: Sequence[Any]) -> Array:
        """Check observations, add them to the statistics, and encode them.

        Args:
            tracks: of the agents.
            observations: one of each, without its mask.

        Returns:
            Rows [N, ...], a new array.

        Raises:
            EnvContractError: an observation is not of the space, or not finite.
        """
        flat = self._flat(observations)
        if flat is None:
            self._raise_wrong_observation(tracks, observations)
        if not self._encoder.gives_finite_rows(flat):
            where, what = nonfinite(flat)
            bad = np.flatnonzero(where.reshape(len(flat), -1).any(axis=1))[0]
            path = nonfinite_part(self._space, where[bad])
            self._raise(tracks[bad], f"an observation{path} with {what}", "finite numbers")
        if self.normalizer is not None:
            self.normalizer.update(flat)
        return self._encoder.rows(flat)

    def _flat(self, observations: Sequence[Any]) -> Array | None:
        """Flat rows of observations; None if one is not of the space."""
        space = self._space
        try:
            if is_box(space):
                array = np.array(observations)
                fits = array.shape[1:] == space.shape and array.dtype.kind in "biuf"
                return cast_exactly(array, space.dtype) if fits else None
            columns = zip(*(structure_leaves(space, each) for each in observations), strict=True)
            parts = zip(leaves(space), columns, strict=True)
            values = (list(each) if leaf.shape is None else np.array(each) for (_, leaf), each in parts)
            return flat_rows(space, from_leaves(space, values))
        except (ValueError, TypeError, KeyError):
            return None

    def _raise_wrong_observation(self, tracks: Sequence[AgentTrack], observations: Sequence[Any]) -> NoReturn:
        wrong = [n for n, each in enumerate(observations) if self._flat([each]) is None]
        n = wrong[0] if wrong else 0
        found, form = f"as observation {describe(observations[n])}", f"an observation of {self._space}"
        try:
            RowWriter(self._space).row(observations[n])
        except WrongObservationError as error:
            found, form = error.facts["found"], error.facts["expected"]
        self._raise(tracks[n], found, form)

    def masks(self, tracks: Sequence[AgentTrack], masks: Sequence[Any], acts: Array) -> Array | None:
        """Check the masks that came with observations.

        Args:
            tracks: of the agents.
            masks: one of each, or None.
            acts: bool [N]: who acts next. For the others, no mask or one that forbids everything means all allowed.

        Returns:
            bool [N, choices]; None if the agents have no masks.

        Raises:
            EnvContractError: a mask is missing, has another length or dtype, or forbids everything.
        """
        if self.has_masks is None:
            self.has_masks = any(mask is not None for mask in masks)
        if not self.has_masks and all(mask is None for mask in masks):
            return None
        sizes = choice_sizes(self._action_space)
        allowed = np.ones((len(masks), sum(sizes)), np.bool_)
        for n, (track, mask, acting) in enumerate(zip(tracks, masks, acts, strict=True)):
            found = None if mask is None else as_mask(mask, sum(sizes))
            if acting and (found is None or not self.has_masks):
                self._raise_wrong_mask(track, mask, found is not None, expected(sizes))
            if found is not None:
                allowed[n] = found
        empty = forbids_all(allowed, sizes)
        if (empty & acts).any():
            track = tracks[int(np.flatnonzero(empty & acts)[0])]
            self._raise(track, "an action mask that forbids everything", "at least one allowed action")
        allowed[empty] = True
        return allowed

    def _raise_wrong_mask(self, track: AgentTrack, mask: Any, is_mask: bool, form: str) -> NoReturn:
        if is_mask:
            self._raise(track, "an action mask", "one with the first observation of its module too")
        found = "no action mask" if mask is None else f"the action mask {describe(mask)}"
        self._raise(track, found, form)

    def _raise(self, track: AgentTrack, found: str, expected: str) -> NoReturn:
        raise EnvContractError(
            f"{track.progress} gave agent {track.agent!r} {found}; expected: {expected}",
            agent=track.agent,
            found=found,
            expected=expected,
            **track.progress.facts,
        )

    def is_repeated(self, observation: Any, info: Any, row: Array, mask: Array | None) -> bool:
        """Whether an observation is one that was seen before.

        Args:
            observation: as the environment gave it.
            info: of the agent.
            row: the observation that was seen.
            mask: the mask that was seen; None: there was none.

        Returns:
            True if observation and mask are equal to those.
        """
        observation, found = self.split(observation, info)
        flat = self._flat([observation])
        if flat is None or not np.array_equal(self._encoder.rows(flat)[0], row):
            return False
        return mask is None or np.array_equal(np.asarray(found), mask)
