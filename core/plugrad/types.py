"""The vocabulary of the whole house: ids, aliases and the constants that RLlib's users know.

Knows nothing of any framework; a tensor of a backend is `Tensor`, which is `Any` on purpose: neutral code
touches tensors only through `ops` and the operators they share.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Tensor: TypeAlias = Any
ModuleID: TypeAlias = str
ParamRef: TypeAlias = str
"""`<module id>/<parameter name>`: stable across processes, frameworks and checkpoints."""
ModuleBatches: TypeAlias = Mapping[ModuleID, Mapping[str, Tensor]]
"""A batch: `{module_id: {column: tensor with leading dimension B}}`."""

ALL_MODULES = "__all_modules__"
DEFAULT_MODULE_ID = "default_policy"
DEFAULT_OPTIMIZER = "default_optimizer"
COMPONENT_LEARNER = "learner"
COMPONENT_RL_MODULE = "rl_module"
COMPONENT_OPTIMIZER = "optimizer"
TOTAL_LOSS_KEY = "total_loss"
