"""`OnnxTensor`: a value of an ONNX graph, with the operators of tensors."""

from typing import Any

import numpy as np

FIRST, LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class OnnxTensor:
    """A value of an ONNX graph. Its operators add nodes.

    Args:
        graph: the `Graph`.
        name: of the value, unique in the graph.
        shape: None for a length that is not known before the graph runs.
        dtype: of numpy.
        value: of a constant.
    """

    __array_ufunc__ = None
    """So that numpy leaves `array + tensor` to this class."""

    def __init__(
        self, graph: Any, name: str, shape: tuple[int | None, ...], dtype: np.dtype[Any], value: Any = None
    ) -> None:
        self.graph, self.name, self.shape, self.dtype, self.value = graph, name, shape, dtype, value

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __add__(self, other: Any) -> "OnnxTensor":
        return self._node("Add", self, other)

    def __radd__(self, other: Any) -> "OnnxTensor":
        return self._node("Add", other, self)

    def __sub__(self, other: Any) -> "OnnxTensor":
        return self._node("Sub", self, other)

    def __rsub__(self, other: Any) -> "OnnxTensor":
        return self._node("Sub", other, self)

    def __mul__(self, other: Any) -> "OnnxTensor":
        return self._node("Mul", self, other)

    def __rmul__(self, other: Any) -> "OnnxTensor":
        return self._node("Mul", other, self)

    def __truediv__(self, other: Any) -> "OnnxTensor":
        return self._node("Div", self, other)

    def __rtruediv__(self, other: Any) -> "OnnxTensor":
        return self._node("Div", other, self)

    def __pow__(self, other: Any) -> "OnnxTensor":
        return self._node("Pow", self, other)

    def __matmul__(self, other: Any) -> "OnnxTensor":
        return self._node("MatMul", self, other)

    def __rmatmul__(self, other: Any) -> "OnnxTensor":
        return self._node("MatMul", other, self)

    def __neg__(self) -> "OnnxTensor":
        return self._node("Neg", self)

    def __lt__(self, other: Any) -> "OnnxTensor":
        return self._node("Less", self, other)

    def __le__(self, other: Any) -> "OnnxTensor":
        return self._node("LessOrEqual", self, other)

    def __gt__(self, other: Any) -> "OnnxTensor":
        return self._node("Greater", self, other)

    def __ge__(self, other: Any) -> "OnnxTensor":
        return self._node("GreaterOrEqual", self, other)

    def __eq__(self, other: Any) -> "OnnxTensor":  # type: ignore[override]
        return self._node("Equal", self, other)

    def __ne__(self, other: Any) -> "OnnxTensor":  # type: ignore[override]
        return self._node("Not", self._node("Equal", self, other))

    __hash__ = object.__hash__

    def __getitem__(self, index: Any) -> "OnnxTensor":
        """Index by whole numbers, slices, None and an ellipsis."""
        x, axis = self, 0
        for part in self._without_ellipsis(index if isinstance(index, tuple) else (index,)):
            if part is None:
                x = self._node("Unsqueeze", x, [axis])
            elif isinstance(part, slice):
                x = x if part == slice(None) else self._node("Slice", x, *_bounds(part, axis))
            else:
                x = self._node("Gather", x, np.asarray(part, np.int64), axis=axis)
                continue  # its axis is gone
            axis += 1
        return x

    def _without_ellipsis(self, index: tuple[Any, ...]) -> list[Any]:
        given = sum(part is not None and part is not Ellipsis for part in index)
        rest = [slice(None)] * (self.ndim - given)
        where = next((n for n, part in enumerate(index) if part is Ellipsis), None)
        return [*index] if where is None else [*index[:where], *rest, *index[where + 1 :]]

    def _node(self, op: str, *inputs: Any, **attributes: Any) -> "OnnxTensor":
        (output,) = self.graph.apply(op, *inputs, **attributes)
        return output  # type: ignore[no-any-return]


def _bounds(part: slice, axis: int) -> list[list[int]]:
    """The starts, ends, axes and steps of ONNX's Slice."""
    step = 1 if part.step is None else part.step
    first, last = (0, LAST) if step > 0 else (LAST, FIRST)
    start = first if part.start is None else part.start
    stop = last if part.stop is None else part.stop
    return [[start], [stop], [axis], [step]]
