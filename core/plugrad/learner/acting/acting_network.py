"""What of a module acts: its network and its state without what only training needs, such as critics."""

from typing import TYPE_CHECKING, Any

import numpy as np

from plugrad.learner.update.connectors import initial_state
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.policy.policy import State
from plugrad.types import ModuleID

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner


def acting_network(learner: "Learner", module_id: ModuleID) -> Network | None:
    """The network of a module as `inference_only` builds it; its parameters are some of the module's.

    Args:
        learner: has the module.
        module_id: the module.

    Returns:
        The network; None for a module of a user's own class, of which all may be needed.
    """
    module = learner.module[module_id]
    if module.network is None:
        return None
    spec = RLModuleSpec(model_config=module.model_config, inference_only=True)
    return learner._build_network(
        module_id=module_id,
        config=learner.config.get_config_for_module(module_id),
        module_spec=spec.complete(module.observation_space, module.action_space),
    )


class ActingState:
    """The state of a stateful module that acts, beside what its critics remember, which no action depends on.

    A policy takes and returns the first part, also where the module has its critics: so it is the same before it is
    saved and after it is loaded without them.

    Args:
        learner: has the module.
        module_id: the module.
    """

    def __init__(self, learner: "Learner", module_id: ModuleID) -> None:
        network = acting_network(learner, module_id)
        self._names = None if network is None else network.initial_state().keys()

    def of(self, state: State) -> State:
        """The part that acts.

        Args:
            state: of the module, `{name: array}`.
        """
        return {name: each for name, each in state.items() if self._names is None or name in self._names}

    def with_the_rest(self, state: State, module: Any, rows: int) -> State:
        """A state that the module takes: what its critics remember is as where an episode begins.

        Args:
            state: the part that acts, `{name: [rows, ...]}`.
            module: the RLModule.
            rows: how many.
        """
        if self._names is None:
            return state
        begun = {name: each for name, each in initial_state(module).items() if name not in self._names}
        rest = {name: np.broadcast_to(each, (rows, *each.shape)) for name, each in begun.items()}
        return {**rest, **state}
