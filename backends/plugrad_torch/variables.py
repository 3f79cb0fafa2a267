"""Variables of torch: a tensor that keeps its place, and the flat vector behind a module's parameters.

While a program is traced a variable is *replaced*: `read` gives the tracer and `assign` takes another, so that the
core's stateful step becomes a function from old values to new ones.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plugrad.gradients import Layout
from plugrad.hooks.backend_helpers import FunctionalCall, default_dtype
from plugrad.types import Array, ParamRef
from plugrad_torch import ops

Place = tuple[Any, str]
"""A dict of parameters or buffers of a module, and a key of it."""


class TensorVariable:
    """A tensor that is assigned in place.

    Learning rates and coefficients are read at every update and seldom change, and a copy from a device waits for all
    that it computes. So the last number that is known on the host stays there, with torch's count of changes in place.

    Args:
        value: number, array or tensor.
        dtype: such as "float32"; None: floats are float32, ints int32.
        device: where it lives.
        trainable: whether autograd follows it.
    """

    def __init__(self, value: Any, dtype: str | None, device: str, trainable: bool = False) -> None:
        self.value = ops.asarray(np.array(value), dtype or default_dtype(value)).to(device)
        self.value.requires_grad_(trainable)
        self.tracer: Tensor | None = None
        self._known: tuple[int, Array] | None = None
        self._keeps_number = device != "cpu" and self.value.ndim == 0 and not self.value.is_inference()

    def read(self) -> Tensor:
        """The live tensor."""
        return self.value if self.tracer is None else self.tracer

    def assign(self, value: Any) -> None:
        """Copy a number, array or tensor into the tensor."""
        if self.tracer is not None:
            self.tracer = self._like(value)
            return
        live = self.value.detach()
        if isinstance(value, float | int):
            live.fill_(value)
            if self._keeps_number:
                number = torch.tensor(value, dtype=live.dtype).numpy()
                self._known = self.value._version, number
        else:
            live.copy_(_as_tensor(value))

    def _like(self, value: Any) -> Tensor:
        """A value as a tensor of the variable's shape, dtype and device, as a copy into it would make it."""
        if isinstance(value, Tensor) and value.shape == self.value.shape and value.dtype == self.value.dtype:
            return value
        made = torch.as_tensor(value, dtype=self.value.dtype, device=self.value.device)
        return made.expand(self.value.shape).clone()

    def snapshot(self) -> Tensor:
        """A copy on the same device."""
        return (self.value if self.tracer is None else self.tracer).detach().clone()

    def numpy(self) -> Array:
        """A copy as numpy; from a device only if the value may have changed since the last one."""
        if not self._keeps_number:
            return self.value.detach().cpu().numpy().copy()
        if self._known is None or self._known[0] != self.value._version:
            self._known = self.value._version, self.value.detach().cpu().numpy()
        return self._known[1].copy()


@contextmanager
def values_kept(variable: Any) -> Iterator[None]:
    """A block in which autograd keeps what was read: assignments take effect at its end, as values without gradients.

    Args:
        variable: a `TensorVariable`, replaced (while a program is traced) or not.
    """
    if variable.tracer is not None:
        yield
        variable.tracer = variable.tracer.detach()
        return
    variable.tracer = before = variable.value.detach().clone()
    try:
        yield
        after = variable.tracer
    finally:
        variable.tracer = None
    if after is not before:
        variable.assign(after.detach())


class BufferVariable:
    """A buffer or a frozen parameter; its module computes with whatever is in `places`.

    Args:
        places: `(dict, key)` of every place where modules keep it.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = list(places)
        self._own: Tensor | None = None

    @property
    def tracer(self) -> Tensor | None:
        """While traced: what the modules compute with in its place."""
        return None if self._own is None else self.read()

    @tracer.setter
    def tracer(self, tensor: Tensor | None) -> None:
        if tensor is None:
            if self._own is not None:
                self._put(self._own)
            self._own = None
            return
        own = self.read()
        # Modules change their buffers in place: it must not be the program's argument that they change.
        self._put(tensor if isinstance(own, torch.nn.Parameter) else tensor.clone())
        self._own = own

    def _put(self, tensor: Tensor) -> None:
        for owner, key in self._places:
            owner[key] = tensor

    def read(self) -> Tensor:
        """The live tensor."""
        owner, key = self._places[0]
        tensor: Tensor = owner[key]
        return tensor

    def assign(self, value: Any) -> None:
        """Copy a number, array or tensor into the tensor."""
        if self._own is not None:
            self._put(value)
            return
        # By `data`: autograd must not take it for a change of what a forward pass has kept for its gradient.
        self.read().data.copy_(_as_tensor(value))

    def snapshot(self) -> Tensor:
        """A copy on the same device."""
        return self.read().detach().clone()

    def numpy(self) -> Array:
        """A copy as numpy."""
        return to_numpy(self.read())


def places_in(module: torch.nn.Module) -> dict[int, list[Place]]:
    """Where a module and those in it keep their parameters and buffers: the places of each, by the tensor's `id`."""
    places: dict[int, list[Place]] = {}
    for each in module.modules():
        for kept in (each._parameters, each._buffers):
            for key, own in kept.items():
                places.setdefault(id(own), []).append((kept, key))
    return places


def to_numpy(tensor: Tensor) -> Array:
    """A copy as numpy; bfloat16, which numpy lacks, becomes float32."""
    tensor = tensor.detach().cpu()
    array: Array = (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy().copy()
    return array


def on_host(names: Sequence[str], vector: Tensor) -> dict[str, Any]:
    """`{metric: number}` of a vector of metrics, copied to the host in one transfer."""
    return dict(zip(names, vector.detach().cpu().numpy(), strict=True))


class FlatParameters:
    """One flat vector whose slices are the storage of ordinary parameters, and of their gradients.

    The parameters stay what the module made them: `p.data` and `p.grad` are views.

    Args:
        refs: names of the parameters.
        params: the parameters, float32, on one device.
        functional_call: makes the modules compute with other tensors in place of these parameters; see `leaf`.
    """

    def __init__(
        self, refs: Sequence[ParamRef], params: Sequence[torch.nn.Parameter], functional_call: FunctionalCall
    ) -> None:
        self.layout = Layout(tuple(refs), tuple(tuple(param.shape) for param in params))
        self.tracer: Tensor | None = None
        self._params = list(params)
        self._functional_call = functional_call
        self._make_views()

    def _make_views(self) -> None:
        self._flat = torch.cat([param.detach().reshape(-1) for param in self._params])
        self.gradient = torch.zeros_like(self._flat)
        self._places: list[tuple[torch.nn.Parameter, int, Tensor]] = []
        for param, view, slope in zip(
            self._params, self._views(self._flat), self._views(self.gradient), strict=True
        ):
            param.data = view
            param.grad = slope
            self._places.append((param, view.data_ptr(), slope))

    def _views(self, flat: Tensor) -> list[Tensor]:
        parts = torch.split(flat, list(self.layout.sizes))
        return [part.view(shape) for part, shape in zip(parts, self.layout.shapes, strict=True)]

    @property
    def params(self) -> list[torch.nn.Parameter]:
        """The parameters behind the vector."""
        return self._params

    def attach(self) -> None:
        """Take the parameters back if somebody gave them another storage (`module.to(...)`, `zero_grad()`)."""
        for param, start, slope in self._places:
            if param.data_ptr() != start or param.grad is not slope:
                self._make_views()
                return

    @contextmanager
    def leaf(self) -> Iterator[Tensor]:
        """While traced: a tensor to differentiate by; the modules compute with slices of it."""
        assert self.tracer is not None
        leaf = self.tracer.detach().requires_grad_(True)
        with self._functional_call(dict(zip(self.layout.refs, self._views(leaf), strict=True))):
            yield leaf

    def read(self) -> Tensor:
        """The live flat vector [size]."""
        return self._flat if self.tracer is None else self.tracer

    def assign(self, value: Any) -> None:
        """Copy a flat vector into the parameters."""
        if self.tracer is not None:
            self.tracer = value
            return
        self._flat.copy_(_as_tensor(value))

    def snapshot(self) -> Tensor:
        """A copy on the same device."""
        self.attach()
        return self._flat.clone()

    def numpy(self) -> Array:
        """A copy as numpy."""
        self.attach()
        return self._flat.cpu().numpy().copy()


def _as_tensor(value: Any) -> Tensor:
    """Torch shares memory with numpy and warns about read-only arrays, such as those of Ray: such are copied."""
    is_shared = isinstance(value, np.ndarray) and not value.flags.writeable
    return torch.as_tensor(value.copy() if is_shared else value).detach()
