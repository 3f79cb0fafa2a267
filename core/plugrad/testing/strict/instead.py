"""What to write instead of what is refused."""

from plugrad.ops import Ops

OWN_OPS = "Compute with learner.ops and operators"
NO_NUMBER = (
    "Compute with the tensor; report it with learner.register_metric; read variables outside of the update"
)
_METHODS = {
    "numpy": "Keep the tensor; what an update shall report goes to learner.register_metric",
    "detach": "Write ops.stop_gradient(x)",
    "item": NO_NUMBER,
    "tolist": NO_NUMBER,
    "cpu": "Leave it out: tensors stay on the learner's device",
    "cuda": "Leave it out: tensors are on the learner's device",
    "to": "Write ops.cast(x, dtype); tensors are on the learner's device",
    "device": "Leave it out: tensors are on the learner's device",
    "astype": "Write ops.cast(x, dtype)",
    "float": "Write ops.cast(x, 'float32')",
    "double": "Write ops.cast(x, 'float32')",
    "long": "Write ops.cast(x, 'int64')",
    "int": "Write ops.cast(x, 'int32')",
    "bool": "Write ops.cast(x, 'bool')",
    "T": "Write ops.permute_dims(x, axes)",
    "mT": "Write ops.permute_dims(x, axes)",
    "transpose": "Write ops.permute_dims(x, axes)",
    "permute": "Write ops.permute_dims(x, axes)",
    "view": "Write ops.reshape(x, shape)",
    "flatten": "Write ops.reshape(x, (-1,))",
    "ravel": "Write ops.reshape(x, (-1,))",
    "unsqueeze": "Write ops.expand_dims(x, axis)",
    "gather": "Write ops.take_along_axis(x, indices, axis)",
    "clamp": "Write ops.clip(x, low, high)",
    "pow": "Write ops.power(x, y)",
    "cumsum": "Write ops.cumulative_sum(x, axis)",
    "size": "Write ops.shape(x): its product is the number of entries",
    "numel": "Write ops.shape(x): its product is the number of entries",
    "ndim": "Write len(ops.shape(x))",
    "dim": "Write len(ops.shape(x))",
    "copy": "Leave it out: nothing is changed in place",
    "clone": "Leave it out: nothing is changed in place",
    "fill": "Write ops.zeros_like(x) + value",
    "at": "Write ops.where(mask, new, x)",
    "backward": "Return the loss: the learner differentiates it",
    "grad": "Write the hook postprocess_gradients",
    "requires_grad": "Leave it out: the learner differentiates by the parameters of its optimizers",
    "requires_grad_": "Leave it out: the learner differentiates by the parameters of its optimizers",
    "assign": "Assign to a variable: learner._get_tensor_variable makes one",
    "assign_add": "Assign to a variable: learner._get_tensor_variable makes one",
}


def instead_of_method(name: str) -> str:
    """What to write in place of a method or attribute of frameworks' tensors."""
    if name in _METHODS:
        return _METHODS[name]
    if name.endswith("_") and not name.startswith("_"):
        return f"It changes the tensor in place. {OWN_OPS}"
    return f"Write ops.{name}(x, ...)" if hasattr(Ops, name) else OWN_OPS
