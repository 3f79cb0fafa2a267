"""`ModuleBatches`: what all agents of one module see and do, in all environments, as arrays."""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, TypeAlias

import numpy as np
from gymnasium.spaces import Space

from plugrad.batch.forms import state_columns
from plugrad.columns import Columns
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import BatchError
from plugrad.observations import model_space
from plugrad.policy.actions import action_converter
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.sampling.learner_rewards import clip_rewards
from plugrad.sampling.multi_agent.agent_observations import AgentObservations
from plugrad.sampling.multi_agent.agent_track import CARRIED, AgentTrack
from plugrad.spaces.kinds import is_structured
from plugrad.spaces.structure import from_leaves, structure_leaves
from plugrad.types import Array, ModuleID

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
        state = {"observation": self._rows[0][track.observations[-1]].copy()}
        if self._masks:
            state[Columns.ACTION_MASK] = self._masks[0][track.observations[-1]].copy()
        return {**state, "columns": dict(track.carried)} if track.waits_for_outcome else state

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
                track.actions, track.carried = [CARRIED], dict(state["columns"])

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
