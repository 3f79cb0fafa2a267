"""Devices: ops that make new tensors on one, since a scalar that stays on the CPU would stop a CUDA program; memory."""

from functools import cache
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor

from plugrad.ops import RULES, Ops
from plugrad_torch import ops


@cache
def ops_on(device: str) -> Ops:
    """`plugrad_torch.ops`, whose ops that make tensors of none make them on `device`."""
    if device == "cpu":
        return ops
    bound = ModuleType(f"{ops.__name__} on {device}")
    vars(bound).update({name: value for name, value in vars(ops).items() if not name.startswith("__")})
    for name, rule in RULES.items():
        if not rule.tensors and hasattr(ops, name):
            setattr(bound, name, _moved(getattr(ops, name), device))
    return cast(Ops, bound)


def _moved(function: Any, device: str) -> Any:
    def on_device(*args: Any, **kwargs: Any) -> Tensor:
        tensor: Tensor = function(*args, **kwargs)
        return tensor.to(device)

    return on_device


def free_memory(device: str) -> int | None:
    """The bytes that are free on a CUDA device; None for any other."""
    return torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else None
