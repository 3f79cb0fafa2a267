"""RLModules: the module classes, their training and inference modes, and their weights on disk."""

from plugrad.rl_module.multi_rl_module import MultiRLModule
from plugrad.rl_module.rl_module import RLModule, columns_of_outputs
from plugrad.rl_module.state_check import check_same_arrays

__all__ = ["MultiRLModule", "RLModule", "check_same_arrays", "columns_of_outputs"]
