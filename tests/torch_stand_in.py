"""A device of torch that is no GPU and behaves like one: "stand_in:0", whose memory is the host's.

Its tensors are real ones of torch's key PrivateUse1, so autograd, modules, optimizers and views treat them as those of
any other device. Every operation on them comes to `_computed`: it reads the same memory as tensors of the CPU, computes
there, and gives the memory of the results to the device. As CUDA it refuses tensors of several devices, but for numbers
without dimensions. It counts what is copied between the device and the host, and refuses to read back inside a step.

`import torch_stand_in` makes the device, once in a process and for all of it.
"""

import ctypes
import sys
from collections import Counter
from typing import Any

import torch
import torch.utils._pytree as trees
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from plugrad.learner.update import step

KIND = "stand_in"
DEVICE = "stand_in:0"
COPIES: Counter[str] = Counter()
"""How often tensors were copied: "to host", "to device"; and how many operations ran: "operations"."""
STEP = step.update.__code__
EXCHANGE = "reduce_gradients"
"""The hook that may read gradients in a step: collectives without tensors of the device sum in the host's memory."""
_CPU, _EXTENSION = 1, 12
"""`kDLCPU` and `kDLExtDev` of `dlpack.h`: the second is PrivateUse1 in torch."""
_READS = {"aten::_local_scalar_dense", "aten::equal", "aten::nonzero", "aten::masked_select"}
"""Operations after which the host knows something of the values."""
_pointer: Any = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _same_memory(tensor: torch.Tensor, kind: int) -> torch.Tensor:
    """The tensor as one of another device: a capsule of DLPack begins with the address and the kind of device."""
    capsule = torch._C._to_dlpack(tensor.detach())
    (ctypes.c_int32 * 2).from_address(_pointer(capsule, b"dltensor") + ctypes.sizeof(ctypes.c_void_p))[:] = [
        kind,
        0,
    ]
    made: torch.Tensor = torch._C._from_dlpack(capsule)
    return made


def is_there(value: Any) -> bool:
    """Whether it is a tensor of the device."""
    return isinstance(value, torch.Tensor) and value.device.type == KIND


def read_back(what: str) -> None:
    """Count a copy to the host.

    Args:
        what: the operation.

    Raises:
        RuntimeError: a gradient step is running.
    """
    COPIES["to host"] += 1
    frame: Any = sys._getframe()
    while frame is not None and frame.f_code.co_name != EXCHANGE:
        if frame.f_code is STEP:
            raise RuntimeError(f"{what}: a value of {DEVICE} is read back inside a step")
        frame = frame.f_back


def _computed(operation: Any, *args: Any, **kwargs: Any) -> Any:
    """The answer to all operations of the device."""
    name = operation._schema.name
    COPIES["operations"] += 1
    given, form = trees.tree_flatten((args, kwargs))
    # Memory that a result needs is made by the CPU, and becomes that of the empty tensor which was given for it.
    empty = [
        each for key, each in kwargs.items() if key.startswith("out") and is_there(each) and not each.numel()
    ]
    owners, here = {}, []
    for each in given:
        if is_there(each):
            is_empty = any(each is other for other in empty)
            made = torch.empty(0, dtype=each.dtype) if is_empty else _same_memory(each, _CPU)
            owners[id(made)] = each
            here.append(made)
        elif isinstance(each, torch.Tensor) and each.dim():
            raise RuntimeError(
                f"{name}: Expected all tensors to be on the same device, found one on {DEVICE} and one of shape "
                f"{list(each.shape)} on {each.device}"
            )
        else:
            here.append(torch.device("cpu") if isinstance(each, torch.device) and each.type == KIND else each)
    if name in _READS:
        read_back(name)
    here_args, here_kwargs = trees.tree_unflatten(here, form)
    results = operation(*here_args, **here_kwargs)
    for made in here:
        if any(owners.get(id(made)) is other for other in empty):
            owners[id(made)].data = _same_memory(made, _EXTENSION)

    def there(result: Any) -> Any:
        if not isinstance(result, torch.Tensor):
            return result
        return owners[id(result)] if id(result) in owners else _same_memory(result, _EXTENSION)

    return trees.tree_map(there, results)


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    if not is_there(target):
        read_back("a copy to the host")
    elif not is_there(source) and source.dim():  # a number is an argument of the program that fills
        COPIES["to device"] += 1
    here = [_same_memory(each, _CPU) if is_there(each) else each for each in (source, target)]
    here[1].copy_(here[0])
    return target


def _empty(size: Any, **options: Any) -> torch.Tensor:
    return _same_memory(torch.empty(size, dtype=options.get("dtype")), _EXTENSION)


def _empty_strided(size: Any, stride: Any, **options: Any) -> torch.Tensor:
    return _same_memory(torch.empty_strided(size, stride, dtype=options.get("dtype")), _EXTENSION)


_setup_privateuseone_for_python_backend(KIND)
_LIBRARIES = [torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")]
_LIBRARIES[0].fallback(_computed, "PrivateUse1")
for _name, _function in {
    "_copy_from": _copy_from,
    "empty.memory_format": _empty,
    "empty_strided": _empty_strided,
}.items():
    _LIBRARIES[1].impl(_name, _function, "PrivateUse1")
