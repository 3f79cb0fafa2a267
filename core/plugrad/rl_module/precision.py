"""Forward passes of a gradient step in bfloat16: columns and weights are cast before, outputs after.

bfloat16 has the exponents of float32 and 8 bits of its 24 of a number, so gradients need no scaling. A cast is
differentiated like any other op, so the gradients of float32 weights are float32. Source: Kalamkar et al. 2019,
arXiv:1905.12322.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from plugrad.ops import Ops
from plugrad.types import Tensor

if TYPE_CHECKING:
    from plugrad.rl_module.rl_module import RLModule

BFLOAT16 = "bfloat16"
DTYPES: Mapping[str, str] = {"bf16": BFLOAT16}
"""The dtype of forward passes by `config.precision`, where it is not float32."""


@contextmanager
def computing_in(modules: Iterable["RLModule"], dtype: str | None) -> Iterator[None]:
    """A block in which `forward_train` of some modules computes in another dtype than outside.

    Args:
        modules: the modules.
        dtype: "bfloat16"; None: float32.
    """
    # Where nothing changes nothing is set: the strict backend refuses what a traced step sets and leaves.
    former = [(module, module._precision) for module in modules if module._precision != dtype]
    for module, _ in former:
        module._precision = dtype
    try:
        yield
    finally:
        for module, own in former:
            module._precision = own


class LoweredColumns(Mapping[str, Any]):
    """Columns whose float32 tensors are cast when they are read; a state or an observation may have several.

    Args:
        ops: tensor functions.
        columns: `{column: tensor}`.
        dtype: what float32 becomes.
    """

    def __init__(self, ops: Ops, columns: Mapping[str, Any], dtype: str) -> None:
        self._ops, self._columns, self._dtype = ops, columns, dtype
        self._read: dict[str, Any] = {}

    def __getitem__(self, column: str) -> Any:
        if column not in self._read:
            self._read[column] = _cast_floats(self._ops, self._columns[column], "float32", self._dtype)
        return self._read[column]

    def __contains__(self, column: object) -> bool:
        return column in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def in_float32(ops: Ops, outputs: Any) -> Any:
    """The outputs of a forward pass with bfloat16 as float32, all else as it is.

    Args:
        ops: tensor functions.
        outputs: tensors in any nested structure.

    Returns:
        The same structure.
    """
    return _cast_floats(ops, outputs, BFLOAT16, "float32")


def _cast_floats(ops: Ops, tree: Any, old: str, new: str) -> Any:
    if isinstance(tree, Mapping):
        return {key: _cast_floats(ops, each, old, new) for key, each in tree.items()}
    if isinstance(tree, tuple | list):
        return type(tree)([_cast_floats(ops, each, old, new) for each in tree])
    dtype = getattr(tree, "dtype", None)
    name = str(getattr(dtype, "name", dtype)).rpartition(".")[2]  # "float32" of `torch.float32`, too
    return ops.cast(tree, new) if name == old else tree


@lru_cache(maxsize=16)
def lowered_ops(ops: Ops, dtype: str) -> Ops:
    """Tensor functions with which a network that asks for float32 computes in another dtype.

    Args:
        ops: a backend's.
        dtype: what float32 becomes.

    Returns:
        A module with the same functions.
    """
    lowered = ModuleType(f"{getattr(ops, '__name__', 'ops')} in {dtype}")
    for name in dir(ops):
        if not name.startswith("__"):
            setattr(lowered, name, getattr(ops, name))

    def lower(x: Tensor) -> Tensor:
        return _cast_floats(ops, x, "float32", dtype)

    def asarray(x: Any, wanted: str | None = None) -> Tensor:
        return lower(ops.asarray(x, wanted))

    def cast(x: Tensor, wanted: str) -> Tensor:
        return ops.cast(x, dtype if wanted == "float32" else wanted)

    def ones(shape: tuple[int, ...], wanted: str = "float32") -> Tensor:
        return lower(ops.ones(shape, wanted))

    def one_hot(indices: Tensor, depth: int) -> Tensor:
        return lower(ops.one_hot(indices, depth))

    def zeros(shape: tuple[int, ...], wanted: str = "float32") -> Tensor:
        return lower(ops.zeros(shape, wanted))

    for each in (asarray, cast, ones, one_hot, zeros):
        setattr(lowered, each.__name__, each)
    return lowered
