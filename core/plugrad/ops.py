"""`Ops`: the tensor functions of every backend, and `Variable`: a tensor that is kept between updates.

A loss, a distribution or an optimizer that is written over `Ops` runs on every backend. Each backend has a module of
these functions, whose values and gradients are tested against `plugrad.numpy_ops`. Names follow the Array API standard
where it has them (https://data-apis.org/array-api/latest/).

Rules for code that calls them:

- Nothing is changed in place, and no boolean mask is used as an index.
- Do not use a Python `if` on the value of a tensor: it works in eager torch and fails in compiled modes.
- Tensors are float32 unless said otherwise. Dtypes are never mixed: `cast` first. A Python number takes the dtype of
  the tensor beside it.
- float64 is float32 on a backend without `Capability.FLOAT64`, and integers of 64 bits may have 32 on any.
- Pass tensors (`x`, `y`, `xs`) and `f` and `init` by position; all other arguments by position or by name.
- Arithmetic, comparison and slicing are the tensor's own operators: `a + b`, `a < b`, `a[:, 0]`, `a[1:]`.
- There are no random numbers here: a loss reads them from columns, which the hook `get_noise_columns` names.
- Shapes broadcast by numpy's rules. For speed, calls do not check their arguments.

Rules for backends: a function may have more parameters than here, if they have defaults, and other names for tensors.
Gradients at kinks are fixed, so that backends which declare `Capability.EXACT_KINKS` agree. At a tie `minimum` and
`maximum` give the whole gradient to `x`; `clip` passes the gradient on at its bounds; `abs`, `relu` and `sign` have
gradient 0 at 0; `min` and `max` share the gradient evenly among equal entries; `norm` and `std` have gradient 0 where
they are 0.

To add an op, declare it here with its `Rule`, and write it in `plugrad.numpy_ops` and in the `ops.py` of each backend.
From the declaration follow the checks of the strict backend, the cases of the backend suite, and the devices on which
tensors are made. `plugrad.onnx.ops` may have its nodes; without them, a policy that acts with it is not exported.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from plugrad.contract import since
from plugrad.types import Array, Tensor

Axis: TypeAlias = int | tuple[int, ...] | None
"""One axis, several, or None for all; a negative one counts from the last."""
Shape: TypeAlias = tuple[int, ...]


@runtime_checkable
class Variable(Protocol):
    """A tensor that is kept between updates: weights, learning rates, coefficients.

    A traced program may read and assign it. A new value needs no new trace.
    """

    def read(self) -> Tensor:
        """The value, a tensor of the backend."""

    def assign(self, value: Tensor) -> None:
        """Replace the value by `value`: a tensor, numpy array or number of the same shape."""

    def snapshot(self) -> Tensor:
        """A copy of the value on its device, in a form that `assign` takes to restore the value."""

    def numpy(self) -> Array:
        """A numpy copy of the value."""


FLOAT, NUMERIC, INTEGER, BOOL, ANY = "f", "fiu", "iu", "b", "fiub"
"""Kinds of dtypes, in numpy's letters."""

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Arguments: TypeAlias = Mapping[str, Any]
"""What an op is given, by name; tensors have a `shape`."""


@dataclass(frozen=True)
class Rule:
    """What an op takes and gives beyond the types of its arguments; a decorator of its declaration.

    Args:
        kinds: dtypes of its tensors.
        tensors: names of its arguments that are tensors of one dtype; `xs` is a list of them. None of an op that makes
            tensors of something else.
        numbers: of `tensors`, which may be Python numbers instead.
        others: further tensors, and their kinds.
        gives: the dtype of the result, or the name of the argument that says it; empty: that of `tensors`.
        is_exact: whether it chooses, moves or converts entries, and rounds none.
        is_smooth: whether its result has a gradient, if the dtype can.
        is_of_positive: whether its tensors must be above 0.
        example: values of its plain arguments that have no default.
        wrong: None, or what is wrong with arguments of right dtypes, and what to write instead.
    """

    kinds: str = ANY
    tensors: tuple[str, ...] = ("x",)
    numbers: tuple[str, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)
    gives: str = ""
    is_exact: bool = False
    is_smooth: bool = True
    is_of_positive: bool = False
    example: Mapping[str, Any] = field(default_factory=dict)
    wrong: Callable[[_Arguments], tuple[str, str] | None] = lambda given: None

    def __call__(self, function: _Function) -> _Function:
        """Mark a declaration."""
        vars(function)["rule"] = self
        return function


def _bounds_of_two_kinds(given: _Arguments) -> tuple[str, str] | None:
    bounds = [each for each in (given.get("min"), given.get("max")) if each is not None]
    if len({hasattr(each, "shape") for each in bounds}) == 1:
        return None
    return "is given a tensor and a number as bounds", "Give two tensors, two numbers or one bound"


def _less_than_two_axes(given: _Arguments) -> tuple[str, str] | None:
    if min(len(given["x"].shape), len(given["y"].shape)) >= 2:
        return None
    return "is given a tensor with less than two axes", "Write ops.expand_dims, or ops.sum(x * y)"


def _indices_of_other_than_one_axis(given: _Arguments) -> tuple[str, str] | None:
    if len(given["indices"].shape) == 1:
        return None
    return f"is given indices {list(given['indices'].shape)}", "Give one axis, or ops.take_along_axis"


def _indices_that_broadcast(given: _Arguments) -> tuple[str, str] | None:
    x, indices, axis = given["x"].shape, given["indices"].shape, given.get("axis", -1)
    if len(x) == len(indices):
        others = (n for n in range(len(x)) if n != axis % len(x))
        if all(x[n] == indices[n] for n in others):
            return None
    what = f"is given x {list(x)} and indices {list(indices)}: only some frameworks broadcast"
    return what, "Give indices the rank of x, and its lengths on all other axes"


class Ops(Protocol):
    """The tensor functions of a backend, such as `learner.ops`.

    `x` and `y` are tensors of the backend; `y` may be a Python number.
    """

    def __hash__(self) -> int:
        """By identity, as for a Python module."""

    # Elementwise.

    @Rule(FLOAT)
    def exp(self, x: Tensor) -> Tensor:
        """`e ** x`."""

    @Rule(FLOAT, is_of_positive=True)
    def log(self, x: Tensor) -> Tensor:
        """Natural logarithm; -inf at 0, NaN below."""

    @Rule(FLOAT, is_of_positive=True)
    def log1p(self, x: Tensor) -> Tensor:
        """`log(1 + x)`, exact for small `x`."""

    @Rule(FLOAT)
    def expm1(self, x: Tensor) -> Tensor:
        """`e ** x - 1`, exact for small `x`."""

    @Rule(FLOAT, is_of_positive=True)
    def sqrt(self, x: Tensor) -> Tensor:
        """Square root; NaN below 0. Its gradient at 0 is infinite."""

    @Rule(NUMERIC)
    def square(self, x: Tensor) -> Tensor:
        """`x * x`."""

    @Rule(NUMERIC, is_exact=True)
    def abs(self, x: Tensor) -> Tensor:
        """Absolute value."""

    @Rule(NUMERIC, is_exact=True, is_smooth=False)
    def sign(self, x: Tensor) -> Tensor:
        """-1, 0 or 1, in the dtype of `x`."""

    @Rule(NUMERIC, ("x", "y"), numbers=("x", "y"))
    def power(self, x: Tensor, y: Tensor) -> Tensor:
        """`x ** y`; one of the two may be a Python number."""

    @Rule(NUMERIC, ("x", "y"), numbers=("y",), is_exact=True)
    def minimum(self, x: Tensor, y: Tensor) -> Tensor:
        """The smaller of the two, NaN if either is. At a tie the gradient goes to `x`."""

    @Rule(NUMERIC, ("x", "y"), numbers=("y",), is_exact=True)
    def maximum(self, x: Tensor, y: Tensor) -> Tensor:
        """The larger of the two, NaN if either is. At a tie the gradient goes to `x`."""

    @Rule(NUMERIC, ("x", "min", "max"), numbers=("min", "max"), is_exact=True, wrong=_bounds_of_two_kinds)
    def clip(self, x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
        """`x` clipped to `[min, max]`: two numbers or two tensors. None means no bound; at least one is given.

        The gradient is 1 within the bounds and on them, 0 outside.
        """

    @Rule(ANY, ("x", "y"), numbers=("x", "y"), others={"condition": BOOL}, is_exact=True)
    def where(self, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """`x` where `condition` (bool) holds, else `y`. One of `x` and `y` may be a Python number.

        The branch not taken has gradient 0, but `0 * inf` is NaN: first make its argument harmless.
        """

    @Rule(FLOAT, gives="bool", is_exact=True, is_smooth=False)
    def isfinite(self, x: Tensor) -> Tensor:
        """Bool: neither NaN nor infinite."""

    @Rule(BOOL, ("x", "y"), is_exact=True)
    def logical_and(self, x: Tensor, y: Tensor) -> Tensor:
        """Both, of bool tensors."""

    @Rule(BOOL, ("x", "y"), is_exact=True)
    def logical_or(self, x: Tensor, y: Tensor) -> Tensor:
        """Either, of bool tensors."""

    @Rule(BOOL, is_exact=True)
    def logical_not(self, x: Tensor) -> Tensor:
        """The opposite of a bool tensor."""

    @Rule(FLOAT)
    def softplus(self, x: Tensor) -> Tensor:
        """`log(1 + exp(x))`, without overflow."""

    @Rule(FLOAT)
    def sigmoid(self, x: Tensor) -> Tensor:
        """`1 / (1 + exp(-x))`, without overflow."""

    @Rule(FLOAT)
    def tanh(self, x: Tensor) -> Tensor:
        """Hyperbolic tangent."""

    @Rule(FLOAT)
    def atanh(self, x: Tensor) -> Tensor:
        """Inverse of `tanh`; infinite at -1 and 1, NaN outside of them."""

    @Rule(FLOAT)
    def erf(self, x: Tensor) -> Tensor:
        """Error function: `2 / sqrt(pi)` times the integral of `exp(-t**2)` from 0 to `x`."""

    @Rule(FLOAT, is_exact=True)
    def relu(self, x: Tensor) -> Tensor:
        """`max(x, 0)`."""

    @Rule(FLOAT)
    def huber(self, x: Tensor, delta: float = 1.0) -> Tensor:
        """`0.5 x**2` where `|x| <= delta`, else `delta * (|x| - delta / 2)`: elementwise, not reduced.

        `delta` is a Python number above 0. Source: Huber 1964, doi:10.1214/aoms/1177703732.
        """

    # Reductions over `axis`, which stays with length 1 with `keepdims`. Undefined for an empty axis.

    @Rule(NUMERIC)
    def sum(self, x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Sum, in the dtype of `x`; cast a bool tensor first."""

    @Rule(FLOAT)
    def mean(self, x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Arithmetic mean of a float tensor."""

    @Rule(FLOAT)
    def var(self, x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Population variance: divided by N, not N - 1."""

    @Rule(FLOAT)
    def std(self, x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Population standard deviation: the square root of `var`."""

    @Rule(NUMERIC, is_exact=True)
    def max(self, x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Largest entry."""

    @Rule(NUMERIC, is_exact=True)
    def min(self, x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Smallest entry."""

    @Rule(NUMERIC, gives="int64", is_exact=True, is_smooth=False)
    def argmax(self, x: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Index (int64 or int32) of a largest entry, any one of equals; in the flattened `x` if `axis` is None."""

    @Rule(FLOAT)
    def norm(self, x: Tensor) -> Tensor:
        """L2 norm over all entries: a scalar."""

    # Along one axis.

    @Rule(NUMERIC)
    def cumulative_sum(self, x: Tensor, axis: int = -1) -> Tensor:
        """Running sum that includes the entry itself; the shape and dtype of `x`."""

    @since(2)
    @Rule(FLOAT, is_exact=True)
    def sort(self, x: Tensor, axis: int = -1) -> Tensor:
        """The entries in ascending order along `axis`; undefined with NaN. Each keeps its gradient."""

    @Rule(FLOAT)
    def softmax(self, x: Tensor, axis: int = -1) -> Tensor:
        """`exp(x) / sum(exp(x))`, without overflow."""

    @Rule(FLOAT)
    def log_softmax(self, x: Tensor, axis: int = -1) -> Tensor:
        """`log(softmax(x))`, without overflow."""

    @Rule(FLOAT)
    def logsumexp(self, x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
        """`log(sum(exp(x)))`, without overflow."""

    # Products.

    @Rule(FLOAT, ("x", "y"), wrong=_less_than_two_axes)
    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """Matrix product over the last two axes; leading ones broadcast. Both have two axes or more."""

    @Rule(FLOAT, ("x", "weight", "bias"))
    def linear(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """`x @ weight + bias`: `x` (..., in), `weight` (in, out), `bias` (out,) -> (..., out).

        Or n layers at once: `x` (B, in) for all of them or (n, B, in), `weight` (n, in, out), `bias` (n, out) ->
        (n, B, out).
        """

    @Rule(FLOAT, ("x", "weight"))
    def conv2d(self, x: Tensor, weight: Tensor, stride: int) -> Tensor:
        """Convolution (the kernel is not flipped): `x` (B, H, W, in), `weight` (h, w, in, out) -> (B, H', W', out).

        `y[b, i, j] = sum over (h, w, in) of x[b, stride*i + h, stride*j + w] * weight[h, w]`. Only where the kernel
        fits ("valid" padding): `H' = (H - h) // stride + 1`. `H >= h` and `W >= w`.
        """

    # Indices.

    @Rule(INTEGER, ("indices",), gives="float32", is_exact=True, example={"depth": 3})
    def one_hot(self, indices: Tensor, depth: int) -> Tensor:
        """float32 (..., depth): 1 at the index, else 0. An index outside `[0, depth)` gives zeros."""

    @Rule(others={"indices": INTEGER}, is_exact=True, wrong=_indices_of_other_than_one_axis)
    def take(self, x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
        """The entries of `x` at `indices`, one-dimensional integers from 0. Undefined if one is out of range."""

    @Rule(others={"indices": INTEGER}, is_exact=True, wrong=_indices_that_broadcast)
    def take_along_axis(self, x: Tensor, indices: Tensor, axis: int = -1) -> Tensor:
        """`x[..., indices[..., j], ...]` along `axis`.

        `indices`: integers from 0, with the rank of `x` and its lengths on all other axes; nothing is broadcast.
        """

    # Shapes.

    @Rule(is_exact=True)
    def reshape(self, x: Tensor, shape: Shape) -> Tensor:
        """The same entries in row-major order; one length may be -1."""

    @Rule(is_exact=True)
    def permute_dims(self, x: Tensor, axes: tuple[int, ...]) -> Tensor:
        """The same entries with the axes in this order: axis `n` of the result is axis `axes[n]` of `x`."""

    @Rule(is_exact=True)
    def flip(self, x: Tensor, axis: int) -> Tensor:
        """The same entries in the opposite order along `axis`."""

    @Rule(is_exact=True)
    def expand_dims(self, x: Tensor, axis: int) -> Tensor:
        """A new axis of length 1 at `axis` of the result."""

    @Rule(is_exact=True)
    def squeeze(self, x: Tensor, axis: int) -> Tensor:
        """`x` without `axis`, whose length must be 1 (torch does not check)."""

    @Rule(ANY, ("xs",), is_exact=True)
    def stack(self, xs: Sequence[Tensor], axis: int = 0) -> Tensor:
        """Tensors of one shape, joined along a new axis."""

    @Rule(ANY, ("xs",), is_exact=True)
    def concat(self, xs: Sequence[Tensor], axis: int = 0) -> Tensor:
        """Tensors joined along an axis that they have."""

    @Rule(is_exact=True)
    def split(self, x: Tensor, sizes: Sequence[int], axis: int = 0) -> Sequence[Tensor]:
        """Consecutive parts of these lengths along `axis`; they add up to its length."""

    @Rule(is_exact=True)
    def broadcast_to(self, x: Tensor, shape: Shape) -> Tensor:
        """`x` repeated to `shape`, which is known: to broadcast to a `y` of open lengths, write `x + zeros_like(y)`."""

    @Rule(is_exact=True, is_smooth=False)
    def shape(self, x: Tensor) -> Shape:
        """The static shape: plain ints, known at trace time (None where a traced program does not know)."""

    # Making tensors, on the framework's default device.

    @Rule(is_exact=True, is_smooth=False)
    def zeros_like(self, x: Tensor) -> Tensor:
        """Zeros in the shape and dtype of `x`."""

    @Rule(is_exact=True, is_smooth=False)
    def ones_like(self, x: Tensor) -> Tensor:
        """Ones in the shape and dtype of `x`."""

    @Rule(tensors=(), gives="dtype", is_exact=True, is_smooth=False)
    def zeros(self, shape: Shape, dtype: str = "float32") -> Tensor:
        """Zeros of a shape and a dtype, which is given by name."""

    @Rule(tensors=(), gives="dtype", is_exact=True, is_smooth=False)
    def ones(self, shape: Shape, dtype: str = "float32") -> Tensor:
        """Ones of a shape and a dtype, which is given by name."""

    @Rule(tensors=(), gives="dtype", is_exact=True, is_smooth=False)
    def asarray(self, x: Any, dtype: str | None = None) -> Tensor:
        """A tensor from a number, nested list, numpy array or tensor. It may share memory with `x`.

        Without `dtype` an array keeps its own; Python floats become float32, ints int64 or int32, bools
        bool.
        """

    @Rule(gives="dtype", is_exact=True)
    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """`x` as "float32", "float64", "int32", "int64", "uint8" or "bool"; floats are truncated towards 0.

        float64 without `Capability.FLOAT64` is float32, and int64 may be int32.
        """

    # Control.

    @Rule(is_exact=True)
    def stop_gradient(self, x: Tensor) -> Tensor:
        """`x` as a constant: no gradient flows through it."""

    @Rule(ANY, ("init", "xs"))
    def scan(
        self, f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, reverse: bool = False
    ) -> tuple[Any, Any]:
        """Thread a carry through the entries of `xs` along axis 0, in order (`jax.lax.scan`).

        `f(carry, x) -> (carry, y)`; `init`, `xs` and `y` are tensors or tuples of them; the carry keeps its
        shapes and dtypes. Returns the last carry and the stacked `y`. `reverse` begins with the last entry; the
        stacked `y` keep the order of `xs`. `f` may be traced more than once, so it must have no side effects. The
        length is static and at least 1. torch unrolls the loop.
        """


RULES: dict[str, Rule] = {
    name: vars(op)["rule"] for name, op in vars(Ops).items() if not name.startswith("_")
}
"""What each op takes and gives, in the order of `Ops`."""
