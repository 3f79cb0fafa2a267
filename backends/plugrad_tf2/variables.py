"""Variables of TensorFlow: a `tf.Variable`, and the flat vector behind a module's variables."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from plugrad.gradients import Layout
from plugrad.hooks.backend_helpers import FunctionalCall, default_dtype
from plugrad.types import Array, ParamRef
from plugrad_tf2 import ops, versions
from plugrad_tf2.direct_call import DirectFunction


def value_of(variable: tf.Variable) -> Any:
    """The present value as a tensor, in a quarter of the time of `read_value()`, which does more for tapes."""
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def values_of(variables: Sequence[tf.Variable]) -> list[Any]:
    """The present values as tensors, read in one call: it takes as long as three of `value_of`.

    The operation is the one by which TensorFlow's compiled programs read their inputs. It is not public: without it
    they are read one by one.
    """
    execute, context = versions.EXECUTE.find(), versions.CONTEXT.find()
    if execute is None or context is None or not variables:  # the operation takes at least one
        return [value_of(each) for each in variables]
    handles = [each.handle for each in variables]
    dtypes = tuple(each.dtype.as_datatype_enum for each in variables)
    values: list[Any] = execute(
        b"_ReadVariablesOp",
        len(handles),
        inputs=handles,
        attrs=("N", len(handles), "dtypes", dtypes),
        ctx=context(),
    )
    return values


def assign_to(variable: tf.Variable, value: Any) -> None:
    """Assign a tensor, in half of the time of `assign()`, which reads the variable or the tensor's shape.

    Args:
        variable: the variable.
        value: a tensor.
    """
    if value.shape == variable.shape and value.dtype == variable.dtype:
        tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)
    else:
        variable.assign(value)  # of a shape that is not known while tracing, or says what does not fit


class TensorVariable:
    """A `tf.Variable`.

    Learning rates and coefficients are read, assigned and copied at every update, and seldom change. So the value of a
    float that no program assigns is cached here: while it stays the same, none of these calls TensorFlow.

    Args:
        value: number, array or tensor.
        dtype: such as "float32"; None: floats are float32, ints int32.
        device: where it lives.
        trainable: whether tapes watch it by themselves.
    """

    _is_programs = True
    """Whether others may change it: programs, or whoever made the variable."""
    _number: float | None = None
    tracer: Any = None
    """What stands for the value while a batched program is traced."""

    def __init__(self, value: Any, dtype: str | None, device: str, trainable: bool = False) -> None:
        with tf.device(device):
            self.value = tf.Variable(
                np.asarray(value), dtype=dtype or default_dtype(value), trainable=trainable
            )
        self._is_programs = trainable or self.value.dtype != tf.float32
        self._number = None if self._is_programs else _number(value)

    @classmethod
    def around(cls, value: tf.Variable) -> "TensorVariable":
        """A TensorVariable for an existing `tf.Variable`."""
        variable = object.__new__(cls)
        variable.value = value
        return variable

    def read(self) -> Any:
        """The present value as a tensor."""
        return self.value.read_value() if self.tracer is None else self.tracer

    def assign(self, value: Any) -> None:
        """Replace the value."""
        if self.tracer is not None:
            self.tracer = tf.broadcast_to(ops.cast(value, self.value.dtype.name), self.value.shape)
            return
        self._is_programs |= not tf.executing_eagerly()
        number = None if self._is_programs else _number(value)
        if number is None or number != self._number:
            assign_to(self.value, ops.asarray(value, self.value.dtype.name))
        self._number = number

    def snapshot(self) -> Any:
        """The present value, which no later assignment changes."""
        if self.tracer is not None:
            return self.tracer
        return value_of(self.value) if self._number is None or not tf.executing_eagerly() else self._number

    def held(self) -> list[tf.Variable]:
        """`[variable]` if its value is not cached here, else `[]`."""
        return [self.value] if self._number is None else []

    def snapshot_of(self, values: list[Any]) -> Any:
        """What `snapshot` returns, of the values of `held`."""
        return values[0] if values else self._number

    def numpy(self) -> Array:
        """A copy as numpy."""
        return np.array(value_of(self.value) if self._number is None else np.float32(self._number))


def _number(value: Any) -> float | None:
    """The value if it is a float on the host."""
    is_number = isinstance(value, float | np.floating) or (isinstance(value, np.ndarray) and value.ndim == 0)
    return float(value) if is_number else None


@dataclass(frozen=True)
class _Values:
    """The tensors of one snapshot, in the order of the variables."""

    tensors: list[Any]


class FlatParameters:
    """One flat vector for the variables of one optimizer.

    Outside a program the module's own variables hold the values, and the vector is joined and split on demand. Inside
    one the vector is *resident*: steps read and assign it alone, and the modules compute with
    slices of it. In a batched program a tracer stands for the vector.

    Args:
        refs: names of the variables.
        params: the variables, float32.
        functional_call: makes the modules compute with other tensors in place of these variables. None: they
            cannot, and always use the variables.
    """

    def __init__(
        self, refs: Sequence[ParamRef], params: Sequence[tf.Variable], functional_call: FunctionalCall | None
    ) -> None:
        self.layout = Layout(tuple(refs), tuple(tuple(param.shape) for param in params))
        self._params = list(params)
        self._functional_call = functional_call
        self._resident = False
        self.tracer: Any = None
        # One call each instead of one per parameter: outside a program they are made at every update.
        self._joined = DirectFunction(self._join, device=params[0].device)
        self._split = DirectFunction(self._split_up, device=params[0].device)
        with tf.device(params[0].device):
            self._flat = tf.Variable(self._joined(), trainable=False)

    def _join(self) -> Any:
        return tf.concat([tf.reshape(param, [-1]) for param in self._params], 0)

    def _split_up(self, flat: Any) -> None:
        parts = self.layout.split(ops, flat)
        for ref, param in zip(self.layout.refs, self._params, strict=True):
            param.assign(parts[ref])

    @contextmanager
    def resident(self) -> Iterator[None]:
        """While it lasts, `read` and `assign` mean the vector; only for modules that can compute with slices."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def enter(self) -> None:
        """Begin to be resident."""
        self._resident = self._functional_call is not None

    def leave(self) -> None:
        """Cease to be resident."""
        self._resident = False

    @property
    def can_be_resident(self) -> bool:
        """Whether modules can compute with slices of the vector."""
        return self._functional_call is not None

    def stay_in_variables(self) -> None:
        """Never be resident: for an optimizer that steps the variables themselves."""
        self._functional_call = None

    def load(self) -> None:
        """Copy the parameters into the vector, at the beginning of a program."""
        if self._functional_call is not None:
            self._flat.assign(self._joined())

    def store(self) -> None:
        """Copy the vector into the parameters, at the end of a program."""
        if self._resident:
            self._split(self._flat.read_value())

    @contextmanager
    def watched(self, tape: tf.GradientTape) -> Iterator[list[Any]]:
        """Let modules compute with something that the tape watches; yields what to differentiate by."""
        if not self._resident or self._functional_call is None:
            for param in self._params:
                tape.watch(param)
            yield self._params
            return
        leaf = tf.identity(self.read())
        tape.watch(leaf)
        with self._functional_call(self.layout.split(ops, leaf)):
            yield [leaf]

    def flat_gradient(self, gradients: Sequence[Any]) -> Any:
        """The flat gradient from those of what `watched` yielded."""
        if self._resident:
            return tf.zeros([self.layout.size]) if gradients[0] is None else gradients[0]
        return self.layout.join(ops, dict(zip(self.layout.refs, map(_dense, gradients), strict=True)))

    @property
    def params(self) -> list[tf.Variable]:
        """The variables behind the vector."""
        return self._params

    def read(self) -> Any:
        """The flat vector [size]."""
        if self.tracer is not None:
            return self.tracer
        return self._flat.read_value() if self._resident else self._joined()

    def assign(self, value: Any) -> None:
        """Replace the flat vector, or put a snapshot back."""
        if isinstance(value, _Values):
            for param, each in zip(self._params, value.tensors, strict=True):
                assign_to(param, each)
            return
        value = ops.asarray(value, "float32")
        if self.tracer is not None:
            self.tracer = value
        elif self._resident:
            self._flat.assign(value)
        else:
            self._split(value)

    def snapshot(self) -> Any:
        """The present values of the parameters, for `assign`: nothing is copied or joined."""
        return _Values([value_of(param) for param in self._params])

    def held(self) -> list[tf.Variable]:
        """The variables behind the vector."""
        return self._params

    def snapshot_of(self, values: list[Any]) -> Any:
        """What `snapshot` returns, of the values of `held`."""
        return _Values(values)

    def numpy(self) -> Array:
        """A copy as numpy."""
        return np.array(self._joined())


def snapshots(variables: Sequence[TensorVariable | FlatParameters]) -> list[Any]:
    """What `snapshot` returns of each, outside of programs; variables that must be read are read in one call."""
    held = [each.held() for each in variables]
    values = iter(values_of([variable for own in held for variable in own]))
    return [each.snapshot_of([next(values) for _ in own]) for each, own in zip(variables, held, strict=True)]


def _dense(gradient: Any) -> Any:
    return tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient
