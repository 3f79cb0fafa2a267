"""Variables of torch: a tensor that keeps its place, and the flat vector behind a module's parameters."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from plugrad.gradients import Layout
from plugrad.types import Array, ParamRef
from torch import Tensor

from plugrad_torch import ops


class TensorVariable:
    """A tensor that is assigned in place.

    Args:
        value: number, array or tensor.
        dtype: such as "float32"; None: floats are float32, ints int32.
        device: where it lives.
        trainable: whether autograd follows it.
    """

    def __init__(self, value: Any, dtype: str | None, device: str, trainable: bool = False) -> None:
        self.value = ops.asarray(np.array(value), dtype or default_dtype(value)).to(device)
        self.value.requires_grad_(trainable)

    def read(self) -> Tensor:
        """The live tensor."""
        return self.value

    def assign(self, value: Any) -> None:
        """Copy a number, array or tensor into the tensor."""
        with torch.no_grad():
            self.value.copy_(torch.as_tensor(value))

    def snapshot(self) -> Tensor:
        """A copy on the same device."""
        return self.value.detach().clone()

    def numpy(self) -> Array:
        """A copy as numpy."""
        return self.value.detach().cpu().numpy().copy()


class FlatParameters:
    """One flat vector whose slices are the storage of ordinary parameters, and of their gradients.

    The parameters stay what the module made them: `p.data` and `p.grad` are views.

    Args:
        refs: names of the parameters.
        params: the parameters, float32, on one device.
    """

    def __init__(self, refs: Sequence[ParamRef], params: Sequence[torch.nn.Parameter]) -> None:
        self.layout = Layout(tuple(refs), tuple(tuple(param.shape) for param in params))
        self._params = list(params)
        self._adopt()

    def _adopt(self) -> None:
        self._flat = torch.cat([param.detach().reshape(-1) for param in self._params])
        self.gradient = torch.zeros_like(self._flat)
        for param, view, slope in zip(
            self._params, self._views(self._flat), self._views(self.gradient), strict=True
        ):
            param.data = view
            param.grad = slope

    def _views(self, flat: Tensor) -> list[Tensor]:
        parts = torch.split(flat, list(self.layout.sizes))
        return [part.view(shape) for part, shape in zip(parts, self.layout.shapes, strict=True)]

    def attach(self) -> None:
        """Take the parameters back if somebody gave them another storage (`module.to(...)`, `zero_grad()`)."""
        start, slope = self._flat.data_ptr(), self.gradient.data_ptr()
        for param, size in zip(self._params, self.layout.sizes, strict=True):
            if param.data_ptr() != start or param.grad is None or param.grad.data_ptr() != slope:
                self._adopt()
                return
            start, slope = start + 4 * size, slope + 4 * size

    def read(self) -> Tensor:
        """The live flat vector [size]."""
        return self._flat

    def assign(self, value: Any) -> None:
        """Copy a flat vector into the parameters."""
        with torch.no_grad():
            self._flat.copy_(torch.as_tensor(value))

    def snapshot(self) -> Tensor:
        """A copy on the same device."""
        return self._flat.clone()

    def numpy(self) -> Array:
        """A copy as numpy."""
        return self._flat.cpu().numpy().copy()


def default_dtype(value: Any) -> str:
    """float32 for floats, int32 for ints, bool for booleans."""
    kind = np.asarray(value).dtype.kind
    return {"f": "float32", "i": "int32", "u": "int32", "b": "bool"}[kind]
