"""`ModuleBatches`: what all agents of one module see and do, in all environments, as arrays."""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NoReturn, TypeAlias

import numpy as np
from gymnasium.spaces import Space

from plugrad.action_masks import as_mask, choice_sizes, expected, forbids_all
from plugrad.batch.forms import state_columns
from plugrad.columns import Columns
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import BatchError, EnvContractError
from plugrad.observations import flat_rows, model_space
from plugrad.observations.rows import cast_exactly, nonfinite, nonfinite_part
from plugrad.policy.actions import action_converter
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.policy.observations import ObservationEncoder, split_action_mask
from plugrad.sampling.env_checker import WrongObservationError, describe
from plugrad.sampling.flat_observations import RowWriter
from plugrad.sampling.learner_rewards import clip_rewards
from plugrad.sampling.multi_agent.agent_track import CARRIED, AgentTrack
from plugrad.spaces.kinds import is_box, is_structured
from plugrad.spaces.layout import flat_space, from_leaves, leaves, stored_space, structure_leaves
from plugrad.types import Array, ModuleID

# --- observations and masks of the agents of one module ---


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


# --- what they see and do ---


MultiAgentPolicyFunction: TypeAlias = Callable[..., Mapping[str, Any]]
"""`act(module_id, observations, state, **mask)`: observations `[N, ...]` to columns `{column: [N, ...]}`.

`state` is None, or of a recurrent module `{name: [N, ...]}`; then the next one is among the columns as
`Columns.STATE_OUT`. If the agents have action masks, the function gets `action_mask=`, bool `[N, choices]`.
"""


class ModuleBatches:
    """The observations and actions of all agents of one module.

    Observations that were added are encoded together, and the module acts on all of those that wait for an action.

    Args:
        module_id: the module.
        observation_space: of its agents, without action masks.
        action_space: of its agents.
        initial_state: returns that of a recurrent module at the start of an episode, `{name: array}`; empty for others.
        normalizer: scales the observations; None: they stay as they are.
        clip: how a learner sees the reward of a step; see `learner_rewards.clip_rewards`.
    """

    def __init__(
        self,
        module_id: ModuleID,
        observation_space: Space[Any],
        action_space: Space[Any],
        *,
        initial_state: Callable[[], Mapping[str, Array]],
        normalizer: ObservationNormalizer | None,
        clip: bool | float | None = None,
    ) -> None:
        self.module_id = module_id
        self.env_observation_space, self.action_space = observation_space, action_space
        self.observation_space = model_space(observation_space, normalized=normalizer is not None)
        self._get_initial_state = initial_state
        self._state_names = tuple(initial_state())
        self._observations = AgentObservations(observation_space, action_space, normalizer)
        self._to_env = action_converter(action_space)
        self._clip = clip
        self.clear()

    @property
    def normalizer(self) -> ObservationNormalizer | None:
        """Scales the observations that the policy sees."""
        return self._observations.normalizer

    @normalizer.setter
    def normalizer(self, normalizer: ObservationNormalizer | None) -> None:
        self._observations.normalizer = normalizer

    @property
    def initial_state(self) -> dict[str, Array]:
        """The present state of an agent whose episode begins."""
        if not self._state_names:
            return {}
        return {name: np.asarray(value) for name, value in self._get_initial_state().items()}

    def clear(self) -> None:
        """Forget all agents."""
        self._rows: list[Array] = []
        self._masks: list[Array] = []
        self._columns: list[dict[str, Array]] = []
        self._num_rows = self._num_actions = 0
        self._added: list[tuple[AgentTrack, Any, Any, bool]] = []
        self._acting: list[AgentTrack] = []
        self._current: tuple[Array, Array | None] = (np.zeros(0), None)

    # --- observations -------------------------------------------------------------------------------------------

    def add(self, track: AgentTrack, observation: Any, info: Any, *, acts: bool) -> None:
        """Add an observation of an agent, to be encoded.

        Args:
            track: of the agent.
            observation: as the environment gave it.
            info: of the agent; may have its mask.
            acts: whether the agent acts next; else it has ended.
        """
        observation, mask = self._observations.split(observation, info)
        track.add_observation(self._num_rows + len(self._added))
        self._added.append((track, observation, mask, acts))

    def encode(self) -> None:
        """Encode the observations that were added; those that wait for an action are the next batch.

        Raises:
            EnvContractError: an observation or a mask is not as the spaces say, or not finite.
        """
        if not self._added:
            self._acting = []
            return
        tracks, observations, masks, acts = zip(*self._added, strict=True)
        rows = self._observations.rows(tracks, observations)
        allowed = self._observations.masks(tracks, masks, np.array(acts))
        self._rows.append(rows)
        self._num_rows += len(rows)
        if allowed is not None:
            self._masks.append(allowed)
        self._acting = [track for track, acting in zip(tracks, acts, strict=True) if acting]
        if len(self._acting) < len(tracks):
            chosen = np.flatnonzero(acts)
            rows, allowed = rows[chosen], None if allowed is None else allowed[chosen]
        self._current = rows, allowed
        self._added = []

    # --- actions ------------------------------------------------------------------------------------------------

    def act(self, policy: MultiAgentPolicyFunction) -> None:
        """Choose the actions of all agents that wait for one.

        Args:
            policy: see `MultiAgentPolicyFunction`.

        Raises:
            BatchError: a column does not have one row per agent.
        """
        if not self._acting:
            return
        rows, allowed = self._current
        state = self._state()
        mask = {} if allowed is None else {Columns.ACTION_MASK: allowed}
        columns = dict(policy(self.module_id, rows, state, **mask))
        after = columns.pop(Columns.STATE_OUT, None)
        if state is not None:
            columns |= state_columns(Columns.STATE_IN, state)
            self._keep_state(state if after is None else after)
        self._columns.append({name: self._checked(name, values) for name, values in columns.items()})
        self._hand_out(self._to_env(self._columns[-1][Columns.ACTIONS]))
        self._acting = []

    def _state(self) -> dict[str, Array] | None:
        if not self._state_names:
            return None
        return {name: np.stack([track.state[name] for track in self._acting]) for name in self._state_names}

    def _keep_state(self, after: Mapping[str, Any]) -> None:
        for name in self._state_names:
            for track, value in zip(self._acting, np.array(after[name]), strict=True):
                track.state[name] = value

    def _checked(self, name: str, values: Any) -> Array:
        if np.ndim(values) == 0 or len(values) != len(self._acting):
            raise BatchError(
                f"the policy of module {self.module_id!r} returned {name!r} of shape {np.shape(values)} for "
                f"{len(self._acting)} agents; a column has one row per agent",
                column=name,
                module_id=self.module_id,
                expected=len(self._acting),
                found=np.shape(values),
            )
        return np.array(values)

    def _hand_out(self, actions: Any) -> None:
        space = self.action_space
        if is_structured(space):
            leaves = zip(*structure_leaves(space, actions), strict=True)
            actions = [from_leaves(space, each) for each in leaves]
        for track, action in zip(self._acting, actions, strict=True):
            track.progress.actions[track.agent] = action
            track.actions.append(self._num_actions)
            self._num_actions += 1

    # --- episodes -----------------------------------------------------------------------------------------------

    def join(self) -> None:
        """Join the arrays of all steps, so that episodes can be cut out of them."""
        self._rows = [np.concatenate(self._rows)] if self._rows else []
        self._masks = [np.concatenate(self._masks)] if self._masks else []
        if self._columns:
            names = self._columns[0]
            self._columns = [{name: np.concatenate([c[name] for c in self._columns]) for name in names}]

    def episode(self, track: AgentTrack) -> SingleAgentEpisode | None:
        """The steps of an agent whose outcome is known, after `join`.

        Args:
            track: of the agent, with at least one step.

        Returns:
            The agent's episode since the last chunk. An action of before that has not all columns of this sample, such
            as a random one before those of a policy, is left out; None: there is no other.
        """
        taken = track.actions[: len(track.rewards)]
        first = int(taken[0] == CARRIED and not self._names <= track.carried.keys())
        if first == len(taken):
            return None
        rows = np.array(track.observations[first : len(taken) + 1])
        columns = self._columns_of(track, taken[first:])
        if self._masks:
            after = self._masks[0][rows[1:]]
            after[-1] |= track.terminated
            columns |= {
                Columns.ACTION_MASK: self._masks[0][rows[:-1]],
                Columns.NEXT_ACTION_MASK: after,
            }
        rewards = np.array(track.rewards[first:], np.float32)
        if self._clip is not None:
            columns[Columns.ENV_REWARDS] = rewards
        return SingleAgentEpisode(
            observations=self._rows[0][rows],
            actions=columns.pop(Columns.ACTIONS),
            rewards=clip_rewards(rewards, self._clip),
            terminated=track.terminated,
            truncated=track.truncated,
            extra_model_outputs=columns,
            id_=track.id_,
            t_started=None if track.t_started is None else track.t_started + first,
            module_id=self.module_id,
        )

    @property
    def _names(self) -> Set[str]:
        """The columns of this sample; none if the module did not act in it."""
        return self._columns[0].keys() if self._columns else set()

    def _columns_of(self, track: AgentTrack, taken: Sequence[int]) -> dict[str, Array]:
        if taken[0] != CARRIED:
            return {name: values[np.array(taken)] for name, values in self._columns[0].items()}
        carried = {name: np.asarray(track.carried[name])[None] for name in self._names or track.carried}
        own = np.array(taken[1:], np.int64)
        return {
            name: np.concatenate([value, self._columns[0][name][own]]) if len(own) else value
            for name, value in carried.items()
        }

    def carry(self, tracks: Sequence[AgentTrack]) -> None:
        """Keep only what agents that go on need: their last observations, and actions that wait for an outcome.

        Args:
            tracks: of the running agents of this module.
        """
        waiting = [track for track in tracks if track.waits_for_outcome]
        last_rows = [track.observations[-1] for track in tracks]
        for track in waiting:
            if (last := track.actions[-1]) != CARRIED:
                track.carried = {name: np.array(values[last]) for name, values in self._columns[0].items()}
        self._num_rows, self._num_actions = len(tracks), 0
        self._rows = [each[last_rows] for each in self._rows if tracks]
        self._masks = [each[last_rows] for each in self._masks if tracks]
        self._columns = []
        for n, track in enumerate(tracks):
            carried = [CARRIED] if track.waits_for_outcome else []
            track.observations, track.actions, track.rewards = [n], carried, []

    # --- state --------------------------------------------------------------------------------------------------

    def get_state(self, track: AgentTrack) -> dict[str, Any]:
        """What an agent carries on, after `carry`: its last observation and its action that waits for an outcome."""
        state: dict[str, Any] = {"observation": self._rows[0][track.observations[-1]].copy()}
        if self._masks:
            state[Columns.ACTION_MASK] = self._masks[0][track.observations[-1]].copy()
        if track.waits_for_outcome:
            state["columns"] = {name: np.array(value) for name, value in track.carried.items()}
        return state

    def set_state(self, tracks: Sequence[AgentTrack], states: Sequence[Mapping[str, Any]]) -> None:
        """Go on with the agents of states of `get_state`.

        Args:
            tracks: of the agents; the actions and observations in them are replaced.
            states: one for each.
        """
        self.clear()
        self._num_rows = len(tracks)
        self._rows = [np.stack([state["observation"] for state in states])] if states else []
        if states and Columns.ACTION_MASK in states[0]:
            self._observations.has_masks = True
            self._masks = [np.stack([state[Columns.ACTION_MASK] for state in states])]
        for n, (track, state) in enumerate(zip(tracks, states, strict=True)):
            track.observations, track.actions, track.rewards = [n], [], []
            if "columns" in state:
                track.actions = [CARRIED]
                track.carried = {name: np.array(value) for name, value in state["columns"].items()}

    @property
    def acting(self) -> list[AgentTrack]:
        """The agents that wait for an action, in the order of the batch."""
        return list(self._acting)

    def set_acting(self, tracks: Sequence[AgentTrack]) -> None:
        """Let agents that have an observation act next, in this order."""
        self._acting = list(tracks)
        if tracks:
            rows = [track.observations[-1] for track in tracks]
            self._current = self._rows[0][rows], self._masks[0][rows] if self._masks else None

    def would_repeat(self, track: AgentTrack, observation: Any, info: Any) -> bool:
        """Whether an observation of a replayed episode is what the agent saw last.

        Args:
            track: of the agent.
            observation: as the environment gave it.
            info: of the agent.

        Returns:
            True if observation and mask are equal to the last ones.
        """
        row = track.observations[-1]
        mask = self._masks[0][row] if self._masks else None
        return self._observations.is_repeated(observation, info, self._rows[0][row], mask)
