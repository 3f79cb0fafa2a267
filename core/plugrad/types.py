"""Type aliases, and the constants that RLlib users know."""

from collections.abc import Mapping
from os import PathLike
from typing import Any, TypeAlias

from numpy.typing import NDArray

StrPath: TypeAlias = str | PathLike[str]
"""A path as a user gives it."""
Array: TypeAlias = NDArray[Any]
"""A numpy array."""
Tensor: TypeAlias = Any
"""A tensor of a backend. It is `Any`: code for all backends uses only `ops` and the tensors' operators."""
ModuleID: TypeAlias = str
"""The name of a module, such as "default_policy"."""
AgentID: TypeAlias = str
"""The name of an agent in an environment, such as "player_0"."""
ParamRef: TypeAlias = str
"""The name of a parameter, `<module id>/<parameter name>`: the same in all processes, frameworks and checkpoints."""
ModuleBatches: TypeAlias = Mapping[ModuleID, Mapping[str, Tensor]]
"""A batch: `{module_id: {column: tensor [B, ...]}}`."""

ALL_MODULES = "__all_modules__"
DEFAULT_MODULE_ID = "default_policy"
DEFAULT_OPTIMIZER = "default_optimizer"
COMPONENT_LEARNER = "learner"
COMPONENT_RL_MODULE = "rl_module"
COMPONENT_OPTIMIZER = "optimizer"
COMPONENT_PLUGIN_STATE = "plugin_state"
TOTAL_LOSS_KEY = "total_loss"
GRADIENT_STEPS = f"num_gradient_steps_lifetime/{ALL_MODULES}"
"""The key of a learner's number of gradient steps in `learner.counters`."""
