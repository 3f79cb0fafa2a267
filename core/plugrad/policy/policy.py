"""`Policy`: acts in an environment with a trained module."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from gymnasium.spaces import Space

from plugrad.columns import Columns
from plugrad.errors import BatchError
from plugrad.policy.actions import action_converter
from plugrad.policy.observations import ObservationEncoder
from plugrad.types import Array

State = Mapping[str, Array]


class Act(Protocol):
    """What a module does with rows of observations."""

    def __call__(self, rows: Array, *, explore: bool, state: State | None) -> Mapping[str, Any]:
        """Columns: `actions` [N, ...] as the distribution gives them and, of a stateful module, `state_out`."""
        ...


class Policy:
    """From an observation to an action that `env.step` takes.

    Made by `plugrad.load_policy`, `Algorithm.get_policy`, `LearnerGroup.get_policy` and `Learner.get_policy`.

    Args:
        act: the module.
        encoder: what happens to observations before it.
        action_space: of one action of the environment.
        initial_state: of a stateful module, `{name: array}` of one row where an episode begins; empty for others.
    """

    def __init__(
        self,
        *,
        act: Act,
        encoder: ObservationEncoder,
        action_space: Space[Any],
        initial_state: State,
    ) -> None:
        self._act = act
        self._encoder = encoder
        self._action_space = action_space
        self._to_env = action_converter(action_space)
        self._initial = dict(initial_state)

    @property
    def observation_space(self) -> Space[Any]:
        """Of one observation that `predict` takes."""
        return self._encoder.space

    @property
    def action_space(self) -> Space[Any]:
        """Of one action that `predict` gives."""
        return self._action_space

    def predict(
        self,
        observation: Any,
        state: State | None = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[Any, dict[str, Array] | None]:
        """Act.

        Args:
            observation: one, or a batch of N, in the structure of `observation_space`: for a Dict space a dict, whose
                arrays have a leading dimension N in a batch.
            state: of a stateful policy, what the call before returned, `{name: [N, ...]}`, N = 1 for one observation.
                None: episodes begin.
            episode_start: bool [N]: the rows that begin an episode now; their state is begun anew. None: none of them.
            deterministic: the most probable action; else one drawn as in training.

        Returns:
            `(actions, state)`: one action of `action_space`, or N of them in an array [N, ...] of its dtype; and the
            state for the next call, None for a policy without one.

        Raises:
            BatchError: observation, state or episode_start do not fit.
        """
        rows, is_single = self._encoder.encode(observation)
        before = self._begun(state, episode_start, len(rows))
        columns = self._act(rows, explore=not deterministic, state=before)
        actions = self._to_env(np.asarray(columns[Columns.ACTIONS]))
        after = columns.get(Columns.STATE_OUT)
        return actions[0] if is_single else actions, None if after is None else dict(after)

    def _begun(self, state: State | None, episode_start: Any, number: int) -> State | None:
        """The state with the rows of `episode_start` begun anew."""
        if episode_start is None:
            return state
        starts = np.atleast_1d(np.asarray(episode_start))
        if starts.shape != (number,) or starts.dtype.kind not in "bi":
            found = f"{starts.dtype}{list(starts.shape)}"
            raise BatchError(
                f"episode_start: expected bool [{number}], one for each observation; found {found}",
                column="episode_start",
                expected=f"bool[{number}]",
                found=found,
            )
        if state is None:
            return None
        return {name: self._reset(name, np.asarray(value), starts) for name, value in state.items()}

    def _reset(self, name: str, value: Array, starts: Array) -> Array:
        initial = self._initial.get(name)
        if initial is None or value.shape != (len(starts), *initial.shape):
            return value  # the module refuses it and says why
        mask = starts.astype(bool).reshape(-1, *[1] * initial.ndim)
        return np.asarray(np.where(mask, initial, value))
