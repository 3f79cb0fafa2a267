"""The bugs, by kind: importing this registers all of them."""

from bugs import (
    broadcasts,
    control_flow,
    dtypes,
    foreign_functions,
    frozen_numbers,
    in_place,
    indexing,
    kept_state,
    key_order,
    minibatches,
    random_numbers,
    tensor_methods,
)

__all__ = [
    "broadcasts",
    "control_flow",
    "dtypes",
    "foreign_functions",
    "frozen_numbers",
    "in_place",
    "indexing",
    "kept_state",
    "key_order",
    "minibatches",
    "random_numbers",
    "tensor_methods",
]
