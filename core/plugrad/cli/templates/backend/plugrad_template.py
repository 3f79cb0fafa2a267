"""Template: a backend for plugrad. It begins with the answers of plugrad's numpy reference, all but one.

Replace them one by one: write a function with the hook's name here, and remove the name from the import. `plugrad
plugins --check template` lists where each answer comes from. docs/hooks.md of plugrad says what an answer must do, and
`pytest` says what does not hold yet. Begin with `ops`, `get_tensor_variable`, `convert_batch_type` and
`convert_to_numpy`: what a tensor is. Then `build_module` and `flatten_parameters`: where weights live. Then
`differentiate` and `compute_gradients`, and last `compile_update`: what makes it fast.

As it is, it computes in float64 and takes gradients by finite differences: for networks of a few dozen weights.
"""

import numpy as np

from plugrad import hookimpl
from plugrad.hooks.backend_spec import BackendInfo, Capability
from plugrad.testing.numpy_backend import (
    wrap_module,
    build_module,
    check_registered_optimizer,
    compile_update,
    compute_gradients,
    convert_batch_type,
    convert_to_numpy,
    differentiate,
    flatten_parameters,
    get_optimizer_lr,
    get_param_ref,
    get_parameters,
    get_tensor_variable,
    is_module_compatible_with_learner,
    ops,
    set_optimizer_lr,
)

__all__ = [
    "backend_info",
    "build_module",
    "check_registered_optimizer",
    "compile_update",
    "compute_gradients",
    "convert_batch_type",
    "convert_to_numpy",
    "differentiate",
    "flatten_parameters",
    "get_optimizer_lr",
    "get_param_ref",
    "get_parameters",
    "get_tensor_variable",
    "is_module_compatible_with_learner",
    "ops",
    "set_optimizer_lr",
    "wrap_module",
]


@hookimpl
def backend_info() -> BackendInfo:
    """The entry point's name, your framework's version, and what it sees and can: see `BackendInfo`."""
    return BackendInfo("template", np.__version__, devices=("cpu",), capabilities={Capability.FLOAT64})
