"""RLModules: what every module answers, several of them by id, their modes and their weights on disk."""

from plugrad.rl_module.rl_module import (
    MultiRLModule,
    RLModule,
    check_same_arrays,
    check_spec_spaces,
    columns_of,
)

__all__ = [
    "MultiRLModule",
    "RLModule",
    "check_same_arrays",
    "check_spec_spaces",
    "columns_of",
]
