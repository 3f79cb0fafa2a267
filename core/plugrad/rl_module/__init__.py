"""RLModules: the module classes, their training and inference modes, and their weights on disk."""

from plugrad.rl_module.modes import with_structured_obs
from plugrad.rl_module.outputs import check_numbers, columns_of_outputs
from plugrad.rl_module.precision import LoweredColumns
from plugrad.rl_module.rl_module import MultiRLModule, NetworkModule, RLModule
from plugrad.rl_module.weights import WeightsOnDemand, check_same_arrays

__all__ = [
    "LoweredColumns",
    "MultiRLModule",
    "NetworkModule",
    "RLModule",
    "WeightsOnDemand",
    "check_numbers",
    "check_same_arrays",
    "columns_of_outputs",
    "with_structured_obs",
]
