"""What a stateful policy remembers, carried from step to step in each environment.

Knows a policy as a function of arrays; nothing of environments, modules or learners.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from plugrad.batch.recurrent_state import named
from plugrad.columns import Columns
from plugrad.types import Array

Act: TypeAlias = Callable[..., Mapping[str, Any]]
"""A policy: observations `[N, ...]` to columns `{column: [N, ...]}`, `Columns.ACTIONS` among them.

A stateful one is called with a second argument, the states `{name: [N, ...]}`, and returns those that follow as
`Columns.STATE_OUT`.
"""


class StatefulPolicy:
    """A policy that is called with observations alone, whether it is stateful or not.

    The state that each step was taken in is recorded as columns `state_in/<name>`: a learner can begin anywhere.

    Args:
        act: the policy.
        initial_state: `{name: array}` of one environment at the start of an episode; empty for a policy without.
        num_envs: `N`.
        gap: whether the step after an episode's end is no step but only resets the environment.
    """

    def __init__(self, act: Act, initial_state: Mapping[str, Array], num_envs: int, *, gap: bool) -> None:
        self._act = act
        self._initial = dict(initial_state)
        self._num_envs = num_envs
        self._gap = gap
        self.begin()

    def begin(self) -> None:
        """Episodes begin everywhere."""
        self._state = {
            name: np.repeat(np.asarray(value)[None], self._num_envs, axis=0)
            for name, value in self._initial.items()
        }
        self._ended = np.zeros(self._num_envs, bool)

    def begin_one(self, env: int) -> None:
        """An episode begins in one environment."""
        for name, value in self._initial.items():
            self._state[name][env] = value

    def __call__(self, observations: Array) -> Mapping[str, Array]:
        """Act, and remember."""
        if not self._initial:
            return self._act(observations)
        before = self._state
        columns = dict(self._act(observations, before))
        after = columns.pop(Columns.STATE_OUT)
        self._state = {name: np.array(after[name]) for name in before}
        return {**columns, **named(Columns.STATE_IN, before)}

    def end(self, ended: Array) -> None:
        """After each step: where `ended`, bool `[N]`, the next begins an episode, behind the gap if there is one."""
        for env in np.flatnonzero(ended | self._ended).tolist() if self._initial else ():
            self.begin_one(env)
        self._ended = ended & self._gap

    def get_state(self) -> dict[str, Array]:
        """What is remembered; copies."""
        return {name: value.copy() for name, value in self._state.items()}

    def set_state(self, state: Mapping[str, Array]) -> None:
        """Go on with what `get_state` returned; a policy whose states have other names begins anew."""
        self.begin()
        if set(state) == set(self._initial):
            self._state = {name: np.array(value) for name, value in state.items()}
