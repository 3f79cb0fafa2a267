"""RLModules: the module classes, their training and inference modes, and their weights on disk."""

from plugrad.rl_module.multi_rl_module import MultiRLModule
from plugrad.rl_module.network_module import NetworkModule
from plugrad.rl_module.outputs import check_numbers, columns_of_outputs
from plugrad.rl_module.rl_module import RLModule
from plugrad.rl_module.state_check import check_same_arrays
from plugrad.rl_module.weights_on_demand import WeightsOnDemand

__all__ = [
    "MultiRLModule",
    "NetworkModule",
    "RLModule",
    "WeightsOnDemand",
    "check_numbers",
    "check_same_arrays",
    "columns_of_outputs",
]
