"""`Graph`: an ONNX graph under construction."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from plugrad.errors import ConfigError, PluginError
from plugrad.importing.on_use import require_extra
from plugrad.types import Array

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


OPSET, IR_VERSION = 18, 10
"""The version of ONNX's operators and that of its files; models of exporters are asked for the same."""
BATCH = "N"
"""The name of the batch dimension, the only one that is not known before the graph runs."""
PREFIX = "model/"
"""Prefix of names that are copied from another model."""


class Graph:
    """An ONNX graph under construction: `input` and `constant` begin it, `apply` adds nodes, `model` ends it.

    Raises:
        MissingFrameworkError: the package `onnx` is not installed.
    """

    def __init__(self) -> None:
        require_extra("onnx", "onnx", "an ONNX export")
        self._inputs: list[OnnxTensor] = []
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._types: dict[str, Any] = {}
        self._domains = {"": OPSET}

    def input(self, name: str, dtype: Any, shape: Sequence[int | None]) -> OnnxTensor:
        """Add an input of the graph.

        Args:
            name: of the input.
            dtype: of numpy.
            shape: None is the batch dimension.

        Returns:
            The input.

        Raises:
            ConfigError: there is an input of this name.
        """
        if name in self._types:
            raise ConfigError(f"an ONNX graph has one input of each name, and {name!r} would be two")
        self._inputs.append(self._tensor(name, self._type(dtype, shape)))
        return self._inputs[-1]

    def constant(self, value: Any, name: str = "/constant") -> OnnxTensor:
        """Add a constant.

        Args:
            value: a number or an array.
            name: its name, if no other value has it.

        Returns:
            The constant.
        """
        from onnx import numpy_helper

        array = np.ascontiguousarray(value).reshape(np.shape(value))
        name = self._unused(name)
        self._constants[name] = numpy_helper.from_array(array, name)
        return self._tensor(name, _type_of(self._constants[name]), array)

    def apply(
        self,
        op: str,
        *inputs: Any,
        num_outputs: int = 1,
        shape: Sequence[int | None] | None = None,
        **attributes: Any,
    ) -> list[OnnxTensor]:
        """Add a node.

        Args:
            op: an operator of ONNX.
            *inputs: tensors of this graph, arrays, lists of whole numbers, or numbers, which get the dtype of the first
                tensor.
            num_outputs: of the node.
            shape: of a single output, where ONNX does not infer it.
            **attributes: of the operator.

        Returns:
            The outputs.
        """
        from onnx import helper

        dtype = next(each.dtype for each in inputs if isinstance(each, OnnxTensor))
        tensors = [each if isinstance(each, OnnxTensor) else self._lifted(each, dtype) for each in inputs]
        names = [each.name for each in tensors]
        outputs: list[str] = []
        for _ in range(num_outputs):
            outputs.append(self._unused(f"/{op}", outputs))
        node = helper.make_node(op, names, outputs, name=outputs[0], **attributes)
        self._nodes.append(node)
        if shape is not None:
            return [self._tensor(outputs[0], self._type(tensors[0].dtype, shape))]
        types = self._inferred(node, tensors)
        return [self._tensor(name, types[name]) for name in outputs]

    def element_type(self, dtype: Any) -> int:
        """ONNX's number of a dtype of numpy."""
        from onnx import helper

        return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def batch_length(self) -> OnnxTensor:
        """The length of the batch dimension, int64 [1]."""
        return self.apply("Shape", self._inputs[0], start=0, end=1)[0]

    def inline(self, model: bytes, inputs: Mapping[str, OnnxTensor]) -> dict[str, OnnxTensor]:
        """Copy a whole model into this graph.

        Args:
            model: a serialised `onnx.ModelProto`.
            inputs: what its inputs read, by name.

        Returns:
            Its outputs, by name.

        Raises:
            PluginError: it has operators of another version.
        """
        import onnx
        from onnx import compose, helper, inliner

        part = compose.add_prefix(inliner.inline_local_functions(onnx.load_from_string(model)), PREFIX)
        used = {node.domain for node in part.graph.node}
        self._domains |= {each.domain: each.version for each in part.opset_import if each.domain in used}
        if self._domains[""] != OPSET:
            raise PluginError(
                f"export_onnx was asked for version {OPSET} of ONNX's operators, and gave {self._domains['']}"
            )
        for constant in part.graph.initializer:
            self._constants[constant.name] = constant
            self._types[constant.name] = _type_of(constant)
        for each in part.graph.input:
            source = inputs[each.name.removeprefix(PREFIX)].name
            self._nodes.append(helper.make_node("Identity", [source], [each.name]))
        self._nodes.extend(part.graph.node)
        return {
            each.name.removeprefix(PREFIX): self._tensor(each.name, each.type) for each in part.graph.output
        }

    def model(self, outputs: Mapping[str, OnnxTensor], metadata: Mapping[str, str]) -> bytes:
        """The model, checked: inputs, the outputs, and the nodes and constants that the outputs need.

        Args:
            outputs: by name.
            metadata: about the model, `{key: text}`.

        Returns:
            A serialised `onnx.ModelProto`.
        """
        from onnx import checker, helper

        nodes = needed_nodes(self._nodes, {each.name for each in outputs.values()})
        nodes += [helper.make_node("Identity", [each.name], [name]) for name, each in outputs.items()]
        read = {name for node in nodes for name in read_by(node)}
        graph = helper.make_graph(
            nodes,
            "policy",
            [self._value_info(each.name, each) for each in self._inputs],
            [self._value_info(*each) for each in outputs.items()],
            [value for name, value in self._constants.items() if name in read],
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(*each) for each in self._domains.items()],
            ir_version=IR_VERSION,
            producer_name="plugrad",
        )
        helper.set_model_props(model, dict(metadata))
        checker.check_model(model, full_check=True)
        serialized: bytes = model.SerializeToString()
        return serialized

    def _inferred(self, node: Any, inputs: Sequence[OnnxTensor]) -> dict[str, Any]:
        """The types of a node's outputs, by the rules of ONNX."""
        from onnx import defs, helper, shape_inference

        types: dict[str, Any] = shape_inference.infer_node_outputs(
            defs.get_schema(node.op_type, OPSET),
            node,
            {each.name: self._types[each.name] for each in inputs},
            {each.name: self._constants[each.name] for each in inputs if _is_index(each)},
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
        )
        return types

    def _value_info(self, name: str, tensor: OnnxTensor) -> Any:
        from onnx import helper

        return helper.make_value_info(name, self._type(tensor.dtype, tensor.shape))

    def _type(self, dtype: Any, shape: Sequence[int | None]) -> Any:
        from onnx import helper

        lengths = [BATCH if length is None else length for length in shape]
        return helper.make_tensor_type_proto(self.element_type(dtype), lengths)

    def _lifted(self, value: Any, dtype: np.dtype[Any]) -> OnnxTensor:
        if isinstance(value, list):
            return self.constant(np.asarray(value, np.int64))
        return self.constant(value if isinstance(value, np.ndarray) else np.asarray(value, dtype))

    def _unused(self, name: str, taken: Sequence[str] = ()) -> str:
        """The name, with a number after it if it is taken."""
        unique, n = name, 0
        while unique in self._types or unique in taken:
            n += 1
            unique = f"{name}_{n}"
        return unique

    def _tensor(self, name: str, type_: Any, value: Array | None = None) -> OnnxTensor:
        from onnx import helper

        self._types[name] = type_
        lengths = type_.tensor_type.shape.dim
        shape = tuple(each.dim_value if each.HasField("dim_value") else None for each in lengths)
        dtype = helper.tensor_dtype_to_np_dtype(type_.tensor_type.elem_type)
        return OnnxTensor(self, name, shape, dtype, value)


def _is_index(tensor: OnnxTensor) -> bool:
    """Whether it is a constant that may be a shape, axes or bounds, which shapes of outputs follow from."""
    return tensor.value is not None and tensor.dtype == np.int64 and tensor.ndim <= 1


def _type_of(constant: Any) -> Any:
    from onnx import helper

    return helper.make_tensor_type_proto(constant.data_type, list(constant.dims))


# --- which nodes are needed: acting needs no critic, and no standard deviation of a Gaussian ---


def needed_nodes(nodes: Sequence[Any], names: set[str]) -> list[Any]:
    """The nodes that some values are computed from.

    Args:
        nodes: of a graph, in order.
        names: of the values.

    Returns:
        Some of the nodes, in order.
    """
    kept = []
    for node in reversed(nodes):
        if names.intersection(node.output):
            kept.append(node)
            names = names.union(read_by(node))
    return kept[::-1]


def read_by(node: Any) -> Iterator[str]:
    """The names of the values that a node reads, also within its branches and loops."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from read_by(inner)
