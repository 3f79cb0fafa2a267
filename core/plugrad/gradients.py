"""Gradients by parameter name over flat buffers, and the three ways of clipping them.

One optimizer owns one flat float32 vector; a parameter is a slice of it. That makes clipping and Adam a handful of
operations whatever the number of parameters. Knows no framework and no learner.
"""

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from plugrad.errors import ConfigError, OptimizerError
from plugrad.ops import Ops, Variable
from plugrad.types import ParamRef, Tensor

Gradients: TypeAlias = Mapping[ParamRef, Tensor]
"""`{param ref: gradient}`; a `FlatGradients` where nobody replaced it by a plain dict."""

CLIP_EPSILON = 1e-6
"""Added to the global norm before dividing by it, as in torch's `clip_grad_norm_`."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Where each parameter lies in a flat buffer. A key by identity: one optimizer, one layout.

    Args:
        refs: names, in buffer order.
        shapes: their shapes, in the same order.
    """

    refs: tuple[ParamRef, ...]
    shapes: tuple[tuple[int, ...], ...]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of entries of each parameter."""
        return tuple(prod(shape) for shape in self.shapes)

    @cached_property
    def size(self) -> int:
        """Number of entries of the whole buffer."""
        return sum(self.sizes)

    def split(self, ops: Ops, flat: Tensor) -> dict[ParamRef, Tensor]:
        """`{ref: tensor of its shape}` from a flat tensor [size]."""
        parts = ops.split(flat, self.sizes, 0)
        return {
            ref: ops.reshape(part, shape)
            for ref, shape, part in zip(self.refs, self.shapes, parts, strict=True)
        }

    def join(self, ops: Ops, tensors: Mapping[ParamRef, Tensor | None]) -> Tensor:
        """The flat tensor [size] of `tensors`; a parameter that is missing or None counts as zero.

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
        return ops.concat(parts, 0)


class FlatVariable(Variable, Protocol):
    """A variable that stands for all parameters of one optimizer: `read()` and `assign()` take the flat vector."""

    @property
    def layout(self) -> Layout:
        """Names and shapes of the parameters behind it."""
        ...


class FlatGradients(MutableMapping[ParamRef, Tensor]):
    """Gradients that live in flat buffers and show themselves by name.

    Views are cut only when asked for; buffers are joined again only if an entry was replaced.

    Args:
        ops: the backend's tensor functions.
        buffers: `[(layout, flat gradient)]`, one per optimizer.
        sources: flat gradients that some of them were clipped from, and that they are finite with.
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
        self._views: dict[Layout, dict[ParamRef, Tensor]] = {}
        self._edited: set[Layout] = set()

    def __getitem__(self, ref: ParamRef) -> Tensor:
        return self._cut(self._owner[ref])[ref]

    def __setitem__(self, ref: ParamRef, gradient: Tensor) -> None:
        layout = self._owner[ref]
        self._cut(layout)[ref] = gradient
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
        return sum(len(layout.refs) for layout in self._flats)

    def flat(self, layout: Layout) -> Tensor:
        """The flat gradient [size] of one optimizer, with all edits."""
        if layout in self._edited:
            return layout.join(self._ops, self._views[layout])
        return self._flats[layout]

    def source(self, layout: Layout) -> Tensor | None:
        """What a flat gradient was clipped from: it is finite if that is. None: nothing is known of it."""
        return None if layout in self._edited else self._sources.get(layout)

    def only(self, layouts: Sequence[Layout]) -> "FlatGradients":
        """The part that belongs to these optimizers."""
        return joined(self._ops, [(self, each) for each in layouts if each in self._flats])

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The optimizers' layouts, in registration order."""
        return tuple(self._flats)

    @cached_property
    def _owner(self) -> dict[ParamRef, Layout]:
        return {ref: layout for layout in self._flats for ref in layout.refs}

    def _cut(self, layout: Layout) -> dict[ParamRef, Tensor]:
        if layout not in self._views:
            self._views[layout] = layout.split(self._ops, self._flats[layout])
        return self._views[layout]


def joined(ops: Ops, parts: Sequence[tuple[FlatGradients, Layout]]) -> FlatGradients:
    """Flat gradients of several mappings as one."""
    buffers = [(layout, gradients.flat(layout)) for gradients, layout in parts]
    return FlatGradients(ops, buffers, {layout: gradients.source(layout) for gradients, layout in parts})


def flat_of(ops: Ops, gradients: Gradients, layout: Layout) -> Tensor:
    """The flat gradient of one optimizer from any mapping."""
    if isinstance(gradients, FlatGradients) and layout in gradients.layouts:
        return gradients.flat(layout)
    return layout.join(ops, gradients)


def layouts_in(gradients: Gradients, layouts: Sequence[Layout]) -> list[Layout]:
    """Those layouts of which `gradients` has at least one entry that is not None."""
    if isinstance(gradients, FlatGradients):
        whole = gradients.layouts  # a part of an optimizer's has its own layout, and is found by name
        return [each for each in layouts if each in whole or any(ref in gradients for ref in each.refs)]
    return [layout for layout in layouts if any(gradients.get(ref) is not None for ref in layout.refs)]


class Clip(Protocol):
    """A clip function: `(gradients, *, grad_clip, grad_clip_by) -> (clipped gradients, norm before clipping)`."""

    def __call__(
        self, gradients: Gradients, *, grad_clip: Any, grad_clip_by: str
    ) -> tuple[Gradients, Tensor]:
        """Clip one optimizer's gradients together; `grad_clip=None` only measures the norm."""
        ...


def as_flat(ops: Ops, gradients: Gradients) -> FlatGradients:
    """Any mapping as `FlatGradients`; entries that are None are left out."""
    if isinstance(gradients, FlatGradients):
        return gradients
    known = {ref: gradient for ref, gradient in gradients.items() if gradient is not None}
    layout = Layout(tuple(known), tuple(ops.shape(gradient) for gradient in known.values()))
    return FlatGradients(ops, [(layout, layout.join(ops, known))] if known else [])


def exchanged(ops: Ops, gradients: Gradients, exchange: Callable[[Tensor], Tensor]) -> FlatGradients:
    """The gradients after `exchange` of all their entries as one flat tensor: one message whatever the optimizers."""
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
    """Clip the gradients of one optimizer and return their global L2 norm before it.

    - `value`: each entry to [-c, c];
    - `norm`: each tensor g to g * min(1, c / (||g|| + 1e-6));
    - `global_norm`: all of them by min(1, c / (norm + 1e-6)), norm over all entries (Pascanu et al. 2013,
      arXiv:1211.5063, algorithm 1).

    Args:
        ops: tensor functions.
        gradients: `{param ref: gradient}`.
        grad_clip: c > 0, a float or a scalar tensor; None measures only.
        grad_clip_by: "value", "norm" or "global_norm".

    Raises:
        ConfigError: for another `grad_clip_by`.
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
            return flat * _shrink(ops, norm, grad_clip)
        if grad_clip_by == "norm":
            parts = layout.split(ops, flat).items()
            return layout.join(ops, {ref: g * _shrink(ops, ops.norm(g), grad_clip) for ref, g in parts})
        raise ConfigError(f"grad_clip_by={grad_clip_by!r}: use 'value', 'norm' or 'global_norm'")

    sources = {layout: flats.flat(layout) for layout in flats.layouts}
    return FlatGradients(ops, [(layout, clip(layout)) for layout in flats.layouts], sources), norm


def _norm(ops: Ops, flats: Sequence[Tensor]) -> Tensor:
    if len(flats) == 1:
        return ops.norm(flats[0])
    return ops.norm(ops.stack([ops.norm(flat) for flat in flats] or [ops.zeros((), "float32")], 0))


def _shrink(ops: Ops, norm: Tensor, limit: Any) -> Tensor:
    return ops.minimum(limit / (norm + CLIP_EPSILON), 1.0)
