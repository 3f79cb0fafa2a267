"""`Ops` over strict tensors: the numpy backend's functions, behind the checks that each declaration in `Ops` says."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from plugrad.errors import did_you_mean
from plugrad.ops import RULES, Ops, Rule, Shape
from plugrad.testing import numpy_loss_ops
from plugrad.testing.strict import recording
from plugrad.testing.strict.refusal import authors_line, refuse
from plugrad.testing.strict.tensor import (
    KINDS,
    StrictTensor,
    check_dtype,
    check_is_of_this_step,
    check_number,
    check_same_dtype,
    dtype_of,
    dtype_of_array,
    made_at,
    raw,
)


class StrictOps:
    """The tensor functions of the strict backend: these three, and all others by their rules."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        refuse(f"there is no op {name!r}", f"See plugrad.ops.Ops.{did_you_mean(name, RULES)}")

    def shape(self, x: Any) -> Shape:
        """See `Ops.shape`."""
        _check_tensor("shape", x)
        return tuple(x.shape)

    def asarray(self, x: Any, dtype: str | None = None) -> StrictTensor:
        """See `Ops.asarray`."""
        if isinstance(x, StrictTensor):
            by_rule: Any = self
            return x if dtype is None else by_rule.cast(x, dtype)
        _check_convertible(x)
        array = numpy_loss_ops.asarray(x, None if dtype is None else check_dtype(dtype))
        found = dtype or dtype_of_array(array)
        answer = StrictTensor(array, found, authors_line() if not dtype and found == "float64" else None)
        recording.note("asarray", (x, dtype), (answer,))
        return answer

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
        by_rule: Any = self
        if isinstance(ys[0], tuple):
            return carry, tuple(by_rule.stack(parts) for parts in zip(*ys, strict=True))
        return carry, by_rule.stack(ys)


def _rows(x: Any) -> list[StrictTensor]:
    _check_tensor("scan", x)
    return [x[n] for n in range(x.shape[0])]


def _check_carry(before: Any, after: Any) -> None:
    old, new = (each if isinstance(each, tuple) else (each,) for each in (before, after))
    for each in new:
        _check_tensor("scan", each)
    if [(each.shape, dtype_of(each)) for each in old] != [(each.shape, dtype_of(each)) for each in new]:
        refuse(
            f"ops.scan: the carry was {before} and becomes {after}",
            "Keep its shapes and dtypes: cast and reshape",
        )


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


def _by_rule(name: str, rule: Rule) -> Callable[..., Any]:
    """An op as a method: checks, numpy's function, and a note of what was computed."""
    function = getattr(numpy_loss_ops, name)
    declared = inspect.signature(getattr(Ops, name))
    signature = declared.replace(parameters=list(declared.parameters.values())[1:])
    parameters = signature.parameters
    tensors = {*rule.tensors, *rule.others}
    by_position = {each for each in tensors if parameters[each].default is inspect.Parameter.empty}
    first = list(parameters).index(rule.tensors[0]) if rule.tensors else 0
    dtype_is_given = rule.gives in parameters

    def op(self: StrictOps, *args: Any, **kwargs: Any) -> Any:
        if recording.is_unchecked() and not dtype_is_given:
            result = function(*map(_raw, args), **{key: _raw(value) for key, value in kwargs.items()})
            dtype = rule.gives or next(
                dtype_of(x) for x in _flat(args[first:]) if isinstance(x, StrictTensor)
            )
            return _each(result, lambda array: StrictTensor(array, dtype))
        if named := by_position & set(kwargs):
            refuse(
                f"ops.{name} is given {', '.join(sorted(named))} by name",
                "Give tensors by position: names may differ",
            )
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            refuse(f"ops.{name}: {error}", f"It takes {signature}")
        given = bound.arguments
        dtype = _check_arguments(name, rule, given)
        if dtype_is_given:
            dtype = check_dtype(given.get(rule.gives, parameters[rule.gives].default))
        result = function(**{key: _raw(value) if key in tensors else value for key, value in given.items()})
        inputs = tuple(_flat(given.values()))
        # A float64 that was asked for by name came from nowhere by chance.
        where = made_at(*inputs) if dtype == "float64" and not dtype_is_given else None
        answer = _each(result, lambda array: StrictTensor(array, dtype, where))
        recording.note(name, inputs, tuple(answer) if isinstance(answer, list) else (answer,))
        return answer

    return op


def _check_arguments(name: str, rule: Rule, given: dict[str, Any]) -> str:
    """Refuse what the rule does not allow; returns the dtype of the result, unless an argument says it."""
    found: list[StrictTensor] = []
    numbers: list[Any] = []
    for argument in rule.tensors:
        value: Any = given.get(argument)
        if value is None and argument in rule.numbers:
            continue
        if argument == "xs" and not isinstance(value, list | tuple):
            refuse(f"a list of tensors is expected, not {value!r:.60}", "Write [x, y]")
        several: Sequence[Any] = value if argument == "xs" else (value,)
        for each in several:
            if argument in rule.numbers and not isinstance(each, StrictTensor):
                check_number(each)
                numbers.append(each)
            else:
                _check_tensor(name, each)
                found.append(each)
    if not found and rule.tensors:
        refuse(f"ops.{name} is given no tensor", "Make one of a number: ops.asarray(x)")
    for each in (*found[1:], *numbers):
        check_same_dtype(f"ops.{name}", found[0], each)
    for x, kinds in ((found[0], rule.kinds),) if found else ():
        _check_kind(name, x, kinds)
    for argument, kinds in rule.others.items():
        _check_tensor(name, given[argument])
        _check_kind(name, given[argument], kinds)
    if wrong := rule.wrong(given):
        refuse(f"ops.{name} {wrong[0]}", wrong[1])
    return rule.gives or dtype_of(found[0])


def _check_tensor(op: str, x: Any) -> None:
    """Refuse what is no strict tensor where an op takes one, or one of another step."""
    if isinstance(x, StrictTensor):
        check_is_of_this_step(x)
        return
    if type(x) in (int, float, bool):
        refuse(f"ops.{op} is given a Python number, {x!r}", "Write math's function, or ops.asarray(x)")
    if isinstance(x, list | tuple):
        refuse(f"ops.{op} is given a {type(x).__name__}", "Write ops.stack(tensors) or ops.asarray(numbers)")
    check_number(x)


_KINDS = {"f": "float", "iu": "integer", "fiu": "numeric", "b": "bool", "fiub": ""}


def _check_kind(name: str, x: StrictTensor, kinds: str) -> None:
    if KINDS[dtype_of(x)] not in kinds:
        to = {"f": "float32", "iu": "int64", "fiu": "float32", "b": "bool"}[kinds]
        refuse(
            f"ops.{name} takes a {_KINDS[kinds]} tensor and is given {dtype_of(x)} {list(x.shape)}",
            f"Write ops.cast(x, '{to}')",
        )


def _each(result: Any, wrap: Callable[[Any], StrictTensor]) -> Any:
    return [wrap(each) for each in result] if isinstance(result, list) else wrap(result)


def _raw(value: Any) -> Any:
    return type(value)(raw(each) for each in value) if isinstance(value, list | tuple) else raw(value)


def _flat(values: Any) -> Iterator[Any]:
    for each in values:
        if isinstance(each, Sequence) and not isinstance(each, str):
            yield from _flat(each)
        else:
            yield each


for _name, _rule in RULES.items():
    if not hasattr(StrictOps, _name):
        setattr(StrictOps, _name, _by_rule(_name, _rule))
