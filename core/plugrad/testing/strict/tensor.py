"""The tensor of the strict backend: arithmetic, comparison and slicing, and a refusal for all else.

Dtypes are named as in `Ops.cast`. float32 is stored as float64, for finite differences.
"""

import operator
from collections.abc import Callable
from typing import Any, NoReturn, Self

import numpy as np

from plugrad.hooks.author_line import Line
from plugrad.ops import Ops
from plugrad.testing.strict import recording
from plugrad.testing.strict.refusal import authors_line, refuse
from plugrad.types import Array

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


DTYPES = ("float32", "float64", "int32", "int64", "uint8", "bool")
KINDS = {"float32": "f", "float64": "f", "int32": "i", "int64": "i", "uint8": "u", "bool": "b"}
NUMERIC = "fiu"


def check_dtype(dtype: Any) -> str:
    """A dtype that code asked for by its name."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        refuse(f"dtype {dtype!r} is not one that every backend knows by this name", f"Write one of {DTYPES}")
    return dtype


def dtype_of_array(array: np.ndarray[Any, Any]) -> str:
    """The dtype of a tensor made of an array: as it is, or the narrowest that holds it."""
    name = str(array.dtype)
    if name in DTYPES:
        return name
    if array.dtype.kind in "fiu":
        return "float32" if array.dtype.kind == "f" else "int32" if array.dtype.itemsize < 4 else "int64"
    return refuse(
        f"an array of dtype {name} is no tensor on any backend", "Give floats, whole numbers or booleans"
    )


ORDER = ("<", "<=", ">", ">=")
EQUALITY = ("==", "!=")
COMPARISONS = frozenset((*ORDER, *EQUALITY))


class StrictTensor:
    """A tensor that does what `plugrad.ops` promises and nothing else.

    Args:
        array: its values; of float32 they may be stored in float64.
        dtype: its dtype, by name.
        made_at: where a float64 tensor was made that nobody asked for by name.
    """

    __slots__ = ("_array", "_dtype", "_made_at", "_step")

    def __init__(self, array: Any, dtype: str, made_at: Line | None = None) -> None:
        self._array: Array = np.asarray(array)
        self._dtype = dtype
        self._made_at = made_at
        self._step = recording.present_step()

    @property
    def shape(self) -> tuple[int, ...]:
        """As `ops.shape` says."""
        return self._array.shape

    @property
    def dtype(self) -> "StrictDtype":
        """To be shown, not to be compared: frameworks have classes of their own."""
        return StrictDtype(self._dtype)

    def __repr__(self) -> str:
        return f"tensor {self._dtype} {list(self.shape)}"

    # --- what is promised ---

    def __getitem__(self, key: Any) -> "StrictTensor":
        check_is_of_this_step(self)
        for each in key if isinstance(key, tuple) else (key,):
            _check_index(each)
        return _noted("slicing", StrictTensor(self._array[key], self._dtype, self._made_at), self, key)

    def __neg__(self) -> "StrictTensor":
        _check_numeric("-", self)
        return _noted("-", StrictTensor(-self._array, self._dtype, self._made_at), self)

    def __pos__(self) -> "StrictTensor":
        _check_numeric("+", self)
        return self

    def __abs__(self) -> "StrictTensor":
        _check_numeric("abs", self)
        return _noted("abs", StrictTensor(np.abs(self._array), self._dtype, self._made_at), self)

    # --- numpy's protocols ---

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> NoReturn:
        others = [each for each in inputs if not isinstance(each, StrictTensor)]
        if others and isinstance(others[0], np.ndarray | np.generic):
            _refuse_numpy_value(others[0])
        refuse(f"np.{ufunc.__name__} of a tensor is numpy's alone", OWN_OPS)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> NoReturn:
        refuse(f"np.{function.__name__} of a tensor is numpy's alone", OWN_OPS)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("a tensor is made a numpy array: in a traced program it has no values", OWN_OPS)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        name = getattr(function, "__name__", str(function))
        refuse(f"{name} is a framework's own function", OWN_OPS)

    def __tf_tensor__(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("a framework's own function is given a tensor of this backend", OWN_OPS)

    # --- what needs a value, or changes one ---

    def __bool__(self) -> bool:
        refuse(
            "Python branches on the value of a tensor (`if`, `while`, `and`, `or`, `not`, `assert`, `in`, `max`)",
            "Write ops.where(condition, x, y), ops.logical_and or ops.maximum",
        )

    def __float__(self) -> float:
        refuse("a tensor is made a Python number: in a traced program it has no value", NO_NUMBER)

    def __int__(self) -> int:
        refuse("a tensor is made a Python number: in a traced program it has no value", NO_NUMBER)

    def __complex__(self) -> complex:
        refuse("a tensor is made a Python number: in a traced program it has no value", NO_NUMBER)

    def __round__(self, digits: int | None = None) -> Self:
        refuse("a tensor is rounded by Python: no backend promises it", OWN_OPS)

    def __index__(self) -> int:
        refuse(
            "a tensor is used as a Python index or number of times",
            "Write ops.take, or a size of ops.shape(x)",
        )

    def __len__(self) -> int:
        refuse("len() of a tensor is not promised", "Write ops.shape(x)[0]")

    def __iter__(self) -> Any:
        refuse(
            "Python iterates over a tensor, which a traced program cannot",
            "Compute on the whole tensor, or write ops.scan or ops.split",
        )

    def __contains__(self, item: Any) -> bool:
        refuse(
            "`in` asks for the values of a tensor", "Write ops.max(ops.cast(x == y, 'float32')) and ops.where"
        )

    def __hash__(self) -> int:
        refuse(
            "a tensor is used as a key, or in a set: not every framework's has a hash",
            "Use a name as the key",
        )

    def __format__(self, spec: str) -> str:
        if spec:
            refuse(f"a tensor is formatted with {spec!r}: in a traced program it has no value", NO_NUMBER)
        return repr(self)

    def __setitem__(self, key: Any, value: Any) -> None:
        refuse(
            "a part of a tensor is changed in place", "Write ops.where(mask, new, x), or ops.concat of parts"
        )

    def __delitem__(self, key: Any) -> None:
        refuse("a part of a tensor is removed in place", "Write ops.concat of what stays")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)  # Python and numpy ask for protocols that a class may lack
        refuse(f"tensors have no `.{name}` on every backend", instead_of_method(name))


class StrictDtype:
    """A dtype that can be shown and asked for nothing else."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __str__(self) -> str:
        return self._name

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        refuse(
            "dtypes of tensors are compared: every framework has its own", "Cast to the dtype that you need"
        )

    def __hash__(self) -> int:
        refuse(
            "a dtype of a tensor is used as a key: every framework has its own",
            "Cast to the dtype that you need",
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        refuse(f"dtypes of tensors have no `.{name}` on every backend", "Cast to the dtype that you need")


def raw(value: Any) -> Any:
    """The array of a strict tensor; anything else as it is."""
    return value._array if isinstance(value, StrictTensor) else value


def check_is_of_this_step(x: Any) -> None:
    """Refuse a tensor that another step made: in a traced program it has no value."""
    if isinstance(x, StrictTensor) and x._step not in (0, recording.present_step()):
        refuse(
            "a tensor that was made in an earlier step is used: outside of its trace it has no value",
            "Make it anew in each step, or keep the value in a variable of learner._get_tensor_variable",
        )


def dtype_of(x: StrictTensor) -> str:
    """The dtype of a tensor, by name."""
    return x._dtype


def made_at(*values: Any) -> Line | None:
    """Where the first of these was made float64 though nobody asked for it."""
    return next((each._made_at for each in values if isinstance(each, StrictTensor) and each._made_at), None)


def check_same_dtype(name: str, x: Any, y: Any) -> str:
    """Refuse what would be promoted, or means something else on another backend; the dtype that both have.

    Args:
        name: of the operation.
        x: a strict tensor or a Python number.
        y: a strict tensor or a Python number; one of the two is a tensor.
    """
    tensor, other = (x, y) if isinstance(x, StrictTensor) else (y, x)
    dtype = dtype_of(tensor)
    if isinstance(other, StrictTensor):
        if dtype_of(other) != dtype:
            _refuse_promotion(name, x, y)
        return dtype
    check_number(other)
    fits = {"f": (int, float), "i": (int,), "u": (int,), "b": (bool,)}[KINDS[dtype]]
    if type(other) not in fits:
        refuse(
            f"`{name}` mixes a {dtype} tensor with a Python {type(other).__name__}, {other!r}: "
            "frameworks promote it differently or not at all",
            f"Cast first: ops.cast(x, '{ {bool: 'bool', int: 'int64', float: 'float32'}[type(other)] }')",
        )
    return dtype


def _refuse_promotion(name: str, x: StrictTensor, y: StrictTensor) -> NoReturn:
    dtypes = f"`{name}` mixes {dtype_of(x)} {list(x.shape)} with {dtype_of(y)} {list(y.shape)}"
    where = made_at(x, y)
    if where is None:
        refuse(
            f"{dtypes}: frameworks promote dtypes differently or not at all", "Cast one: ops.cast(x, dtype)"
        )
    refuse(
        f"ops.asarray keeps the float64 of an array here, and `{name}` at line {':'.join(map(str, authors_line()))} "
        f"mixes {dtype_of(x)} with {dtype_of(y)}",
        'Write ops.asarray(array, "float32")',
        at=where,
    )


def check_number(value: Any) -> None:
    """Refuse what is neither a tensor nor a plain Python number."""
    if type(value) in (int, float, bool):
        return
    if isinstance(value, np.ndarray | np.generic):
        _refuse_numpy_value(value)
    if hasattr(value, "read") and hasattr(value, "assign"):
        refuse("a variable is used in place of its value", "Write variable.read()")
    refuse(f"a {type(value).__name__} is used as a tensor", "Write ops.asarray(value, dtype)")


def _refuse_numpy_value(value: Any) -> NoReturn:
    if np.ndim(value) == 0:
        refuse(
            f"a numpy {value.dtype} is used as a Python number: it has a dtype of its own, which frameworks promote to",
            "Write float(value) or int(value)",
        )
    refuse(
        f"a numpy array, {value.dtype} {list(value.shape)}, is used as a tensor",
        'Write ops.asarray(array, "float32")',
    )


def _check_numeric(name: str, x: StrictTensor) -> None:
    if KINDS[dtype_of(x)] not in NUMERIC:
        refuse(
            f"`{name}` computes with a bool tensor",
            "Write ops.cast(mask, 'float32'), or ops.logical_not, ops.where",
        )


def _check_index(key: Any) -> None:
    if key is None or key is Ellipsis or type(key) is int:
        return
    if isinstance(key, slice):
        for each in (key.start, key.stop, key.step):
            if each is not None and type(each) is not int:
                refuse(f"a slice has a {type(each).__name__} as a bound", "Write Python ints, or ops.take")
        if (key.step or 1) < 1:
            refuse("a slice goes backwards, which not every framework does", "Write ops.flip(x, axis)")
        return
    if isinstance(key, StrictTensor | np.ndarray):
        dtype = dtype_of(key) if isinstance(key, StrictTensor) else key.dtype.name
        if dtype == "bool":
            refuse(
                "a boolean mask is an index: what it gives has no static shape",
                "Write ops.where(mask, x, 0.0), and divide sums by ops.sum(ops.cast(mask, 'float32'))",
            )
        refuse("a tensor is an index", "Write ops.take(x, indices) or ops.take_along_axis(x, indices)")
    refuse(
        f"a {type(key).__name__} is an index: frameworks differ in what they take",
        "Write ints and slices, or ops.take(x, ops.asarray(indices))",
    )


def _noted(name: str, answer: StrictTensor, *inputs: Any) -> StrictTensor:
    recording.note(name, inputs, (answer,))
    return answer


def _compute(name: str, function: Callable[[Any, Any], Any], x: Any, y: Any) -> StrictTensor:
    check_is_of_this_step(x)
    check_is_of_this_step(y)
    if recording.is_unchecked():
        dtype = dtype_of(x if isinstance(x, StrictTensor) else y)
        return StrictTensor(function(raw(x), raw(y)), "bool" if name in COMPARISONS else dtype)
    dtype = check_same_dtype(name, x, y)
    kind = KINDS[dtype]
    if name in EQUALITY:
        pass
    elif kind == "b":
        refuse(
            f"`{name}` computes with bool tensors",
            "Write ops.cast(mask, 'float32'), or ops.logical_and, ops.where",
        )
    elif name == "/" and kind != "f":
        refuse(
            f"`/` divides {dtype} tensors: frameworks give float32, float64 or an error",
            "Cast first, or write //",
        )
    gives = "bool" if name in COMPARISONS else dtype
    return _noted(name, StrictTensor(function(raw(x), raw(y)), gives, made_at(x, y)), x, y)


def _binary(name: str, function: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    def forward(self: StrictTensor, other: Any) -> StrictTensor:
        return _compute(name, function, self, other)

    def reverse(self: StrictTensor, other: Any) -> StrictTensor:
        return _compute(name, function, other, self)

    return forward, reverse


def _in_place(name: str) -> Callable[[StrictTensor, Any], NoReturn]:
    def refused(self: StrictTensor, other: Any) -> NoReturn:
        refuse(f"`{name}=` changes a tensor in place on some frameworks", f"Write x = x {name} y")

    return refused


def _logical(name: str, instead: str) -> Callable[..., NoReturn]:
    def refused(self: StrictTensor, other: Any = None) -> NoReturn:
        refuse(f"`{name}` of tensors is not promised", f"Write {instead}")

    return refused


def _add_operators() -> None:
    arithmetic = {
        "+": (operator.add, "add"),
        "-": (operator.sub, "sub"),
        "*": (operator.mul, "mul"),
        "/": (operator.truediv, "truediv"),
        "//": (operator.floordiv, "floordiv"),
        "%": (operator.mod, "mod"),
        "**": (operator.pow, "pow"),
    }
    for name, (function, word) in arithmetic.items():
        forward, reverse = _binary(name, function)
        setattr(StrictTensor, f"__{word}__", forward)
        setattr(StrictTensor, f"__r{word}__", reverse)
        setattr(StrictTensor, f"__i{word}__", _in_place(name))
    for name, word in zip((*ORDER, *EQUALITY), ("lt", "le", "gt", "ge", "eq", "ne"), strict=True):
        setattr(StrictTensor, f"__{word}__", _binary(name, getattr(operator, word))[0])
    for name, word, instead in (
        ("&", "and", "ops.logical_and(x, y)"),
        ("|", "or", "ops.logical_or(x, y)"),
        ("^", "xor", "x != y"),
        ("@", "matmul", "ops.matmul(x, y)"),
        ("~", "invert", "ops.logical_not(x)"),
    ):
        for prefix in ("", "r", "i") if name != "~" else ("",):
            setattr(StrictTensor, f"__{prefix}{word}__", _logical(name, instead))


_add_operators()
