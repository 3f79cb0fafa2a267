"""`Ops` over strict tensors: the numpy backend's functions, behind checks of what each may be given."""

import inspect
from collections.abc import Callable, Sequence
from inspect import BoundArguments, Signature
from typing import Any, NoReturn

import numpy as np

from plugrad.errors import did_you_mean
from plugrad.ops import Ops, Shape
from plugrad.testing import numpy_loss_ops
from plugrad.testing.strict import recording
from plugrad.testing.strict.dtypes import KINDS, check_dtype, dtype_of_array
from plugrad.testing.strict.op_rules import RULES, Rule
from plugrad.testing.strict.refusal import authors_line, refuse
from plugrad.testing.strict.tensor import (
    StrictTensor,
    check_is_of_this_step,
    check_number,
    check_same_dtype,
    dtype_of,
    made_at,
    raw,
)

_NAMES = frozenset(name for name in vars(Ops) if not name.startswith("_"))


class StrictOps:
    """The tensor functions of the strict backend."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        refuse(f"there is no op {name!r}", f"See plugrad.ops.Ops.{did_you_mean(name, _NAMES)}")

    def shape(self, x: Any) -> Shape:
        """See `Ops.shape`."""
        check_tensor("shape", x)
        return tuple(x.shape)

    def zeros(self, shape: Any, dtype: str = "float32") -> StrictTensor:
        """See `Ops.zeros`."""
        return _noted("zeros", numpy_loss_ops.zeros(shape, check_dtype(dtype)), dtype, shape, dtype)

    def ones(self, shape: Any, dtype: str = "float32") -> StrictTensor:
        """See `Ops.ones`."""
        return _noted("ones", numpy_loss_ops.ones(shape, check_dtype(dtype)), dtype, shape, dtype)

    def asarray(self, x: Any, dtype: str | None = None) -> StrictTensor:
        """See `Ops.asarray`."""
        if isinstance(x, StrictTensor):
            return x if dtype is None else self.cast(x, dtype)
        _check_convertible(x)
        array = numpy_loss_ops.asarray(x, None if dtype is None else check_dtype(dtype))
        found = dtype or dtype_of_array(array)
        answer = StrictTensor(array, found, authors_line() if not dtype and found == "float64" else None)
        recording.note("asarray", (x, dtype), (answer,))
        return answer

    def cast(self, x: Any, dtype: str) -> StrictTensor:
        """See `Ops.cast`."""
        check_tensor("cast", x)
        return _noted("cast", numpy_loss_ops.cast(raw(x), check_dtype(dtype)), dtype, x, dtype)

    def scan(
        self, f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, reverse: bool = False
    ) -> tuple[Any, Any]:
        """See `Ops.scan`."""
        entries = list(zip(*map(_rows, xs), strict=True)) if isinstance(xs, tuple) else _rows(xs)
        carry, ys = init, []
        for x in reversed(entries) if reverse else entries:
            after, y = f(carry, x)
            _check_carry(carry, after)
            carry = after
            ys.append(y)
        if reverse:
            ys.reverse()
        stack: Any = getattr(self, "stack")  # noqa: B009, made of the table
        if isinstance(ys[0], tuple):
            return carry, tuple(stack(parts) for parts in zip(*ys, strict=True))
        return carry, stack(ys)


def _rows(x: Any) -> list[StrictTensor]:
    check_tensor("scan", x)
    return [x[n] for n in range(x.shape[0])]


def _check_carry(before: Any, after: Any) -> None:
    old, new = (each if isinstance(each, tuple) else (each,) for each in (before, after))
    for each in new:
        check_tensor("scan", each)
    if [(each.shape, dtype_of(each)) for each in old] != [(each.shape, dtype_of(each)) for each in new]:
        refuse(
            f"ops.scan: the carry was {before} and becomes {after}",
            "Keep its shapes and dtypes: cast and reshape",
        )


def check_tensor(op: str, x: Any) -> None:
    """Refuse what is no strict tensor where an op takes one, or one of another step."""
    if isinstance(x, StrictTensor):
        check_is_of_this_step(x)
        return
    if type(x) in (int, float, bool):
        refuse(f"ops.{op} is given a Python number, {x!r}", "Write math's function, or ops.asarray(x)")
    if isinstance(x, list | tuple):
        refuse(f"ops.{op} is given a {type(x).__name__}", "Write ops.stack(tensors) or ops.asarray(numbers)")
    check_number(x)


def _check_convertible(x: Any) -> None:
    if isinstance(x, list | tuple):
        for each in x:
            if isinstance(each, StrictTensor):
                refuse("ops.asarray is given a list of tensors", "Write ops.stack(tensors)")
            _check_convertible(each)
    elif not isinstance(x, int | float | bool | np.ndarray | np.generic):
        refuse(
            f"ops.asarray is given a {type(x).__name__}",
            "Give a number, a nested list, a numpy array or a tensor",
        )


def _noted(name: str, array: Any, dtype: str, *inputs: Any) -> StrictTensor:
    answer = StrictTensor(array, dtype)
    recording.note(name, inputs, (answer,))
    return answer


def _checked(name: str, rule: Rule, signature: Signature) -> Callable[..., Any]:
    function = getattr(numpy_loss_ops, name)
    tensors = {*rule.tensors, *(other for other, _ in rule.others)} - {"min", "max"}

    def op(self: StrictOps, *args: Any, **kwargs: Any) -> Any:
        if recording.is_unchecked():
            result = function(*map(_raw, args), **{key: _raw(value) for key, value in kwargs.items()})
            return _plain(result, rule.gives or _first_dtype(args[rule.skips :]))
        if named := tensors & set(kwargs):
            refuse(
                f"ops.{name} is given {', '.join(sorted(named))} by name",
                "Give tensors by position: names may differ",
            )
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            refuse(f"ops.{name}: {error}", f"It takes {signature}")
        dtype = _check_arguments(name, rule, bound)
        arguments = {key: _raw(value) for key, value in bound.arguments.items()}
        result = function(**arguments)
        return _wrapped(name, result, rule.gives or dtype, tuple(_flat(bound.arguments.values())))

    return op


def _check_arguments(name: str, rule: Rule, bound: BoundArguments) -> str:
    given = bound.arguments
    dtypes: list[Any] = []
    numbers: list[Any] = []
    for argument in rule.tensors:
        value = given.get(argument)
        if value is None and argument in rule.numbers:
            continue
        for each in _listed(value) if argument == "xs" else (value,):
            if argument in rule.numbers and not isinstance(each, StrictTensor):
                check_number(each)
                numbers.append(each)
            else:
                check_tensor(name, each)
                dtypes.append(each)
    if not dtypes:
        refuse(f"ops.{name} is given no tensor", "Make one of a number: ops.asarray(x)")
    for each in (*dtypes[1:], *numbers):
        check_same_dtype(f"ops.{name}", dtypes[0], each)
    dtype = dtype_of(dtypes[0])
    _check_kind(name, dtypes[0], rule.kinds)
    for argument, kinds in rule.others:
        check_tensor(name, given[argument])
        _check_kind(name, given[argument], kinds)
    for check in _MORE.get(name, ()):
        check(given)
    return dtype


_KINDS = {"f": "float", "iu": "integer", "fiu": "numeric", "b": "bool", "fiub": ""}


def _check_kind(name: str, x: StrictTensor, kinds: str) -> None:
    if KINDS[dtype_of(x)] not in kinds:
        to = {"f": "float32", "iu": "int64", "fiu": "float32", "b": "bool"}[kinds]
        refuse(
            f"ops.{name} takes a {_KINDS[kinds]} tensor and is given {dtype_of(x)} {list(x.shape)}",
            f"Write ops.cast(x, '{to}')",
        )


def _check_clip(given: dict[str, Any]) -> None:
    bounds = [each for each in (given.get("min"), given.get("max")) if each is not None]
    if len({isinstance(each, StrictTensor) for each in bounds}) != 1:
        refuse(
            "ops.clip is given a tensor and a number as bounds", "Give two tensors, two numbers or one bound"
        )


def _check_take(given: dict[str, Any]) -> None:
    if len(given["indices"].shape) != 1:
        refuse(
            f"ops.take is given indices {list(given['indices'].shape)}",
            "Give one axis, or ops.take_along_axis",
        )


def _check_take_along_axis(given: dict[str, Any]) -> None:
    x, indices, axis = given["x"].shape, given["indices"].shape, given.get("axis", -1)
    if len(x) != len(indices) or any(
        a != b for n, (a, b) in enumerate(zip(x, indices, strict=True)) if n != axis % len(x)
    ):
        refuse(
            f"ops.take_along_axis is given x {list(x)} and indices {list(indices)}: only some frameworks broadcast",
            "Give indices the rank of x, and its lengths on all other axes",
        )


def _check_matmul(given: dict[str, Any]) -> None:
    if min(len(given["x"].shape), len(given["y"].shape)) < 2:
        refuse(
            "ops.matmul is given a tensor with less than two axes", "Write ops.expand_dims, or ops.sum(x * y)"
        )


_MORE: dict[str, tuple[Callable[[dict[str, Any]], None], ...]] = {
    "clip": (_check_clip,),
    "take": (_check_take,),
    "take_along_axis": (_check_take_along_axis,),
    "matmul": (_check_matmul,),
}


def _first_dtype(args: Sequence[Any]) -> str:
    return next(dtype_of(each) for each in _flat(args) if isinstance(each, StrictTensor))


def _plain(result: Any, dtype: str) -> Any:
    if isinstance(result, list):
        return [StrictTensor(each, dtype) for each in result]
    return StrictTensor(result, dtype)


def _listed(value: Any) -> Sequence[Any]:
    if isinstance(value, list | tuple):
        return value
    refuse(f"a list of tensors is expected, not {value!r:.60}", "Write [x, y]")


def _raw(value: Any) -> Any:
    # A tuple stays one: axes must be, and shapes may be.
    return type(value)(raw(each) for each in value) if isinstance(value, list | tuple) else raw(value)


def _flat(values: Any) -> list[Any]:
    return [leaf for each in values for leaf in (_flat(each) if isinstance(each, list | tuple) else [each])]


def _wrapped(name: str, result: Any, dtype: str, inputs: tuple[Any, ...]) -> Any:
    where = made_at(*inputs) if dtype == "float64" else None
    if isinstance(result, list):
        parts = [StrictTensor(each, dtype, where) for each in result]
        recording.note(name, inputs, tuple(parts))
        return parts
    answer = StrictTensor(result, dtype, where)
    recording.note(name, inputs, (answer,))
    return answer


def _add_ops() -> None:
    for name, rule in RULES.items():
        declared = inspect.signature(getattr(Ops, name))
        parameters = list(declared.parameters.values())[1:]
        setattr(StrictOps, name, _checked(name, rule, declared.replace(parameters=parameters)))


_add_ops()
