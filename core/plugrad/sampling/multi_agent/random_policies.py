"""Random actions in place of the modules' actions."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from plugrad.columns import Columns
from plugrad.policy.actions import random_action_sampler
from plugrad.rng_streams import stream
from plugrad.sampling.multi_agent.module_batches import ModuleBatches, MultiAgentPolicyFunction
from plugrad.types import Array, ModuleID


class RandomPolicies:
    """Draws uniformly random actions for all modules; recurrent states go on as if the modules had acted.

    Args:
        act: the policies of the modules.
        modules: that act, `{module_id: ...}`; later ones may be added to it.
        max_agents: that one module acts for at once.
        seed: of the draws.
        name: of the streams, with the module's id.
    """

    def __init__(
        self,
        act: MultiAgentPolicyFunction,
        modules: Callable[[], Mapping[ModuleID, ModuleBatches]],
        *,
        max_agents: int,
        seed: int,
        name: str,
    ) -> None:
        self._act, self._modules = act, modules
        self._max_agents, self._seed, self._name = max_agents, seed, name
        self._draw: dict[ModuleID, Callable[..., Array]] = {}

    def __call__(
        self, module_id: ModuleID, observations: Array, state: Mapping[str, Array] | None, **mask: Array
    ) -> dict[str, Any]:
        """The columns of one module.

        Args:
            module_id: the module.
            observations: `[N, ...]`.
            state: of a recurrent module, `{name: [N, ...]}`.
            **mask: `action_mask` `[N, choices]` if the agents have masks.

        Returns:
            The actions, and the next state of a recurrent module.
        """
        if module_id not in self._draw:
            rng = stream(self._seed, "random_actions", self._name, module_id)
            space = self._modules()[module_id].action_space
            self._draw[module_id] = random_action_sampler(space, self._max_agents, rng)
        actions = np.asarray(self._draw[module_id](**mask))[: len(observations)]
        if state is None:
            return {Columns.ACTIONS: actions}
        after = self._act(module_id, observations, state, **mask)[Columns.STATE_OUT]
        return {Columns.ACTIONS: actions, Columns.STATE_OUT: after}
