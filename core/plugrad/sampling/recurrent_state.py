"""The state of a recurrent policy, carried from step to step in each environment."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from plugrad.batch.forms import state_columns
from plugrad.columns import Columns
from plugrad.types import Array

PolicyFunction: TypeAlias = Callable[..., Mapping[str, Any]]
"""A policy: observations `[N, ...]` to columns `{column: [N, ...]}`, `Columns.ACTIONS` among them.

A recurrent one takes the states `{name: [N, ...]}` as a second argument, and returns the next ones as
`Columns.STATE_OUT`. If the environments have action masks, it gets `action_mask=`, bool `[N, choices]`.
"""


InitialState: TypeAlias = Mapping[str, Array] | Callable[[], Mapping[str, Array]]
"""The state of one environment at the start of an episode, `{name: array}`; empty for stateless policies.

A function is asked whenever episodes begin: the state may depend on weights.
"""


class ActingPolicy:
    """A policy function with its recurrent state; without a state it calls the function as it is.

    The state in which each step was taken is recorded as columns `state_in/<name>`, so that learning can begin at any
    step.

    Args:
        act: the policy function.
        initial_state: see `InitialState`.
        num_envs: `N`.
        next_step_autoreset: the step after an episode's end only resets the environment
            (`gymnasium.vector.AutoresetMode.NEXT_STEP`).
        begin: is told the environments in which episodes begin, bool `[N]`; None: nobody.
    """

    def __init__(
        self,
        act: PolicyFunction,
        initial_state: InitialState,
        num_envs: int,
        *,
        next_step_autoreset: bool,
        begin: Callable[[Array], None] | None = None,
    ) -> None:
        self._act, self._begin = act, begin
        self._get_initial = initial_state if callable(initial_state) else lambda: initial_state
        self._initial = dict(self._get_initial())
        self._state_columns = state_columns(Columns.STATE_IN, self._initial).keys()
        self._num_envs = num_envs
        self._next_step_autoreset = next_step_autoreset
        self.reset()

    def reset(self) -> None:
        """Set the initial state in all environments."""
        self._update_initial()
        self._state = {
            name: np.repeat(np.asarray(value)[None], self._num_envs, axis=0)
            for name, value in self._initial.items()
        }
        self._ended = np.zeros(self._num_envs, bool)
        if self._begin is not None:
            self._begin(~self._ended)

    def reset_one(self, env: int) -> None:
        """Set the initial state in one environment."""
        self._update_initial()
        for name, value in self._initial.items():
            self._state[name][env] = value

    def _update_initial(self) -> None:
        if self._initial:
            self._initial = dict(self._get_initial())

    def __call__(self, observations: Array, **mask: Array) -> Mapping[str, Array]:
        """Act on observations `[N, ...]`, and keep the next state.

        Args:
            observations: `[N, ...]`.
            **mask: `action_mask` `[N, choices]` if the environments have masks.

        Returns:
            The columns of the policy, and `state_in/<name>`.
        """
        if not self._initial:
            return self._act(observations, **mask)
        before = self._state
        columns = dict(self._act(observations, before, **mask))
        after = columns.pop(Columns.STATE_OUT)
        self._state = {name: np.array(after[name]) for name in before}
        return {**columns, **state_columns(Columns.STATE_IN, before)}

    def with_actions(
        self, draw: Callable[..., Array], observations: Array, **mask: Array
    ) -> Mapping[str, Array]:
        """Take other actions than the policy's, and keep the next state as if it had acted.

        Args:
            draw: gives the actions `[N, ...]`; it gets the mask.
            observations: `[N, ...]`.
            **mask: as in a call.

        Returns:
            The actions and `state_in/<name>`, without the policy's columns about its own actions.
        """
        columns = self(observations, **mask) if self._initial else {}
        states = {name: values for name, values in columns.items() if name in self._state_columns}
        return {Columns.ACTIONS: draw(**mask), **states}

    def reset_ended(self, ended: Array) -> None:
        """After each step: set the initial state where an episode ended (and again after a step that only resets).

        Args:
            ended: bool `[N]`.
        """
        begun = ended | self._ended
        for env in np.flatnonzero(begun).tolist() if self._initial else ():
            self.reset_one(env)
        if self._begin is not None and begun.any():
            self._begin(begun)
        self._ended = ended & self._next_step_autoreset

    def get_state(self) -> dict[str, Array]:
        """The present state `{name: [N, ...]}`; copies."""
        return {name: value.copy() for name, value in self._state.items()}

    def set_state(self, state: Mapping[str, Array]) -> None:
        """Continue with a state of `get_state`; one with other names is replaced by the initial state."""
        self.reset()
        if set(state) == set(self._initial):
            self._state = {name: np.array(value) for name, value in state.items()}
