"""Gradients by parameter name over flat vectors, and the three ways of clipping them.

Each optimizer owns one flat float32 vector; a parameter is a slice of it. So clipping and Adam take a handful of
operations for any number of parameters.
"""

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import numpy as np

from plugrad.errors import ConfigError, OptimizerError
from plugrad.ops import Ops, Variable
from plugrad.types import Array, ParamRef, Tensor

Gradients: TypeAlias = Mapping[ParamRef, Tensor]
"""`{param ref: gradient}`: a `FlatGradients`, or a plain dict that a hook returned."""

CLIP_EPSILON = 1e-6
"""Added to the global norm before dividing by it, as in torch's `clip_grad_norm_`."""


@dataclass(frozen=True, eq=False)
class Layout:
    """The place of each parameter in the flat vector of one optimizer.

    Two layouts are equal only if they are the same object, so that a layout is a key for its optimizer.

    Args:
        refs: the parameters' names, in the order of the vector.
        shapes: their shapes, in the same order.
        multiple: the vector's length is a multiple of this, such as the number of devices that share it. Zeros at its
            end fill it up; they are no parameters, and no gradient or step changes them.
    """

    refs: tuple[ParamRef, ...]
    shapes: tuple[tuple[int, ...], ...]
    multiple: int = 1

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of entries of each parameter."""
        return tuple(prod(shape) for shape in self.shapes)

    @cached_property
    def num_parameters(self) -> int:
        """Number of entries of all parameters."""
        return sum(self.sizes)

    @cached_property
    def padding(self) -> int:
        """Number of zeros at the end of the vector."""
        return -self.num_parameters % self.multiple

    @cached_property
    def size(self) -> int:
        """Number of entries of the whole vector."""
        return self.num_parameters + self.padding

    def split(self, ops: Ops, flat: Tensor) -> dict[ParamRef, Tensor]:
        """Split a flat vector into parameters.

        Args:
            ops: tensor functions.
            flat: [size].

        Returns:
            `{ref: tensor of its shape}`.
        """
        parts = ops.split(flat, (*self.sizes, self.padding) if self.padding else self.sizes, 0)
        return {
            ref: ops.reshape(part, shape)
            for ref, shape, part in zip(self.refs, self.shapes, parts[: len(self.refs)], strict=True)
        }

    def arrays(self, vector: Array) -> dict[ParamRef, Array]:
        """The parameters in a vector of numpy, as views: `{ref: array of its shape}`."""
        ends = zip(self.refs, self.shapes, self.sizes, accumulate(self.sizes), strict=True)
        return {ref: vector[end - size : end].reshape(shape) for ref, shape, size, end in ends}

    def vector(self, arrays: Mapping[ParamRef, Array]) -> Array:
        """The inverse of `arrays`: a float32 vector [size] of the arrays of all parameters."""
        parts = [np.ravel(arrays[ref]) for ref in self.refs]
        return np.concatenate([*parts, np.zeros(self.padding)], dtype=np.float32)

    def join(self, ops: Ops, tensors: Mapping[ParamRef, Tensor | None]) -> Tensor:
        """Join tensors to a flat vector.

        Args:
            ops: tensor functions.
            tensors: `{ref: tensor of its shape}`; a parameter that is missing or None becomes zeros.

        Returns:
            [size].

        Raises:
            OptimizerError: a tensor has another shape than its parameter.
        """
        parts = []
        for ref, shape, size in zip(self.refs, self.shapes, self.sizes, strict=True):
            tensor = tensors.get(ref)
            if tensor is not None and tuple(ops.shape(tensor)) != shape:
                raise OptimizerError(
                    f"parameter {ref!r} has shape {list(shape)}; found {list(ops.shape(tensor))} for it"
                )
            parts.append(ops.zeros((size,), "float32") if tensor is None else ops.reshape(tensor, (size,)))
        if self.padding:
            parts.append(ops.zeros((self.padding,), "float32"))
        return ops.concat(parts, 0)


class FlatVariable(Variable, Protocol):
    """The parameters of one optimizer as a variable: `read()` gives and `assign()` takes the flat vector [size]."""

    @property
    def layout(self) -> Layout:
        """The names, shapes and order of its parameters."""
        ...


class FlatGradients(MutableMapping[ParamRef, Tensor]):
    """A mapping `{param ref: gradient}` over flat vectors, one per optimizer.

    A vector is split into gradients when one of them is first read, and joined again only if one was replaced. Entries
    can be replaced, not removed.

    Args:
        ops: tensor functions.
        buffers: `[(layout, flat gradient [size])]`, one per optimizer.
        sources: `{layout: flat gradient before clipping}`, to check whether gradients are finite.

    Attributes:
        layouts: the optimizers' layouts, in registration order.
    """

    def __init__(
        self,
        ops: Ops,
        buffers: Sequence[tuple[Layout, Tensor]],
        sources: Mapping[Layout, Tensor | None] = MappingProxyType({}),
    ) -> None:
        self._ops = ops
        self._sources = sources
        self._flats = dict(buffers)
        self.layouts = tuple(self._flats)
        self._views: dict[Layout, dict[ParamRef, Tensor]] = {}
        self._edited: set[Layout] = set()

    def __getitem__(self, ref: ParamRef) -> Tensor:
        return self._split(self._owner[ref])[ref]

    def __setitem__(self, ref: ParamRef, gradient: Tensor) -> None:
        layout = self._owner[ref]
        self._split(layout)[ref] = gradient
        self._edited.add(layout)

    def __delitem__(self, ref: ParamRef) -> None:
        raise TypeError(
            f"the gradient of {ref!r} cannot be removed: set it to zeros, or return a dict without it"
        )

    def __contains__(self, ref: object) -> bool:
        return ref in self._owner

    def __iter__(self) -> Iterator[ParamRef]:
        return iter(self._owner)

    def __len__(self) -> int:
        return len(self._owner)

    def copy(self) -> dict[ParamRef, Tensor]:
        """The gradients as a plain dict."""
        return dict(self)

    def __or__(self, other: Mapping[ParamRef, Tensor]) -> dict[ParamRef, Tensor]:
        return {**self, **other}

    def flat(self, layout: Layout) -> Tensor:
        """The flat gradient [size] of one optimizer, with all replaced entries."""
        if layout in self._edited:
            return layout.join(self._ops, self._views[layout])
        return self._flats[layout]

    def source(self, layout: Layout) -> Tensor | None:
        """The flat gradient [size] before clipping, which is checked for NaN instead of the clipped one; or None."""
        return None if layout in self._edited else self._sources.get(layout)

    def only(self, layouts: Sequence[Layout]) -> "FlatGradients":
        """The gradients of those of these optimizers that this mapping has."""
        flats, sources = [], {}
        for layout in layouts:
            if layout in self._edited:
                flats.append((layout, self.flat(layout)))
            elif layout in self._flats:
                flats.append((layout, self._flats[layout]))
                sources[layout] = self._sources.get(layout)
        return FlatGradients(self._ops, flats, sources)

    @cached_property
    def _owner(self) -> dict[ParamRef, Layout]:
        return {ref: layout for layout in self._flats for ref in layout.refs}

    def _split(self, layout: Layout) -> dict[ParamRef, Tensor]:
        if layout not in self._views:
            self._views[layout] = layout.split(self._ops, self._flats[layout])
        return self._views[layout]


def joined(ops: Ops, parts: Sequence[tuple[FlatGradients, Layout]]) -> FlatGradients:
    """Join the gradients of several mappings.

    Args:
        ops: tensor functions.
        parts: `[(gradients, layout)]`: each layout, and the mapping from which to take its gradients.

    Returns:
        The gradients of these layouts, in this order.
    """
    buffers = [(layout, gradients.flat(layout)) for gradients, layout in parts]
    return FlatGradients(ops, buffers, {layout: gradients.source(layout) for gradients, layout in parts})


def flat_of(ops: Ops, gradients: Gradients, layout: Layout) -> Tensor:
    """The flat gradient of one optimizer.

    Args:
        ops: tensor functions.
        gradients: `FlatGradients` or a plain dict.
        layout: the optimizer's.

    Returns:
        [size]; gradients that are missing or None are zeros.
    """
    if isinstance(gradients, FlatGradients) and layout in gradients.layouts:
        return gradients.flat(layout)
    return layout.join(ops, gradients)


def layouts_in(gradients: Gradients, layouts: Sequence[Layout]) -> list[Layout]:
    """The layouts that have at least one gradient that is not None.

    Args:
        gradients: `FlatGradients` or a plain dict.
        layouts: the layouts to look for.

    Returns:
        Those that were found, in the order of `layouts`.
    """
    if isinstance(gradients, FlatGradients):
        whole = gradients.layouts
        if whole == tuple(layouts):
            return list(layouts)
        # Some gradients of an optimizer have a layout of their own: look for their names.
        return [each for each in layouts if each in whole or any(ref in gradients for ref in each.refs)]
    return [layout for layout in layouts if any(gradients.get(ref) is not None for ref in layout.refs)]


class Clip(Protocol):
    """A clip function, as the hook `get_clip_function` returns it."""

    def __call__(
        self, gradients: Gradients, *, grad_clip: Any, grad_clip_by: str
    ) -> tuple[Gradients, Tensor]:
        """Clip the gradients of one optimizer. See `clip_gradients` for arguments and result."""
        ...


def as_flat(ops: Ops, gradients: Gradients) -> FlatGradients:
    """Convert gradients to `FlatGradients`.

    Args:
        ops: tensor functions.
        gradients: `FlatGradients`, returned as they are, or a plain dict; its entries that are None are left out.

    Returns:
        The gradients; those of a plain dict have one layout.
    """
    if isinstance(gradients, FlatGradients):
        return gradients
    known = {ref: gradient for ref, gradient in gradients.items() if gradient is not None}
    layout = Layout(tuple(known), tuple(ops.shape(gradient) for gradient in known.values()))
    return FlatGradients(ops, [(layout, layout.join(ops, known))] if known else [])


def exchanged(ops: Ops, gradients: Gradients, exchange: Callable[[Tensor], Tensor]) -> FlatGradients:
    """Exchange all gradients between learners in one message.

    Args:
        ops: tensor functions.
        gradients: of any number of optimizers.
        exchange: takes this learner's flat tensor and returns the exchanged one, such as the sum over learners.

    Returns:
        The exchanged gradients.
    """
    flats = as_flat(ops, gradients)
    parts = [flats.flat(layout) for layout in flats.layouts]
    if len(parts) > 1:
        bucket = exchange(ops.concat(parts, 0))
        parts = list(ops.split(bucket, [layout.size for layout in flats.layouts], 0))
    elif parts:
        parts = [exchange(parts[0])]
    return FlatGradients(ops, list(zip(flats.layouts, parts, strict=True)))


def clip_gradients(
    ops: Ops, gradients: Gradients, *, grad_clip: Any, grad_clip_by: str
) -> tuple[Gradients, Tensor]:
    """Clip the gradients of one optimizer, and measure their global L2 norm before clipping.

    - `value`: each entry is clipped to [-c, c].
    - `norm`: each tensor g is multiplied by min(1, c / (||g|| + 1e-6)).
    - `global_norm`: all gradients are multiplied by min(1, c / (norm + 1e-6)), where the norm is over all entries.

    Source: Pascanu et al. 2013, arXiv:1211.5063, algorithm 1 (`global_norm`).

    Args:
        ops: tensor functions.
        gradients: `{param ref: gradient}`.
        grad_clip: c above 0, a float or a scalar tensor; None clips nothing.
        grad_clip_by: "value", "norm" or "global_norm".

    Returns:
        The clipped gradients, and the norm before clipping, a float32 scalar.

    Raises:
        ConfigError: `grad_clip_by` is none of the three.
    """
    flats = as_flat(ops, gradients)
    norm = _norm(ops, [flats.flat(layout) for layout in flats.layouts])
    if grad_clip is None:
        return flats, norm

    def clip(layout: Layout) -> Tensor:
        flat = flats.flat(layout)
        if grad_clip_by == "value":
            return ops.clip(flat, -grad_clip, grad_clip)
        if grad_clip_by == "global_norm":
            return flat * _factor(ops, norm, grad_clip)
        if grad_clip_by == "norm":
            parts = layout.split(ops, flat).items()
            return layout.join(ops, {ref: g * _factor(ops, ops.norm(g), grad_clip) for ref, g in parts})
        raise ConfigError(f"grad_clip_by={grad_clip_by!r}: use 'value', 'norm' or 'global_norm'")

    sources = {layout: flats.flat(layout) for layout in flats.layouts}
    return FlatGradients(ops, [(layout, clip(layout)) for layout in flats.layouts], sources), norm


def _norm(ops: Ops, flats: Sequence[Tensor]) -> Tensor:
    if len(flats) == 1:
        return ops.norm(flats[0])
    return ops.norm(ops.stack([ops.norm(flat) for flat in flats] or [ops.zeros((), "float32")], 0))


def _factor(ops: Ops, norm: Tensor, limit: Any) -> Tensor:
    return ops.minimum(limit / (norm + CLIP_EPSILON), 1.0)
