"""What each op takes and gives: the part of `plugrad.ops.Ops` that is said in words there, as a table."""

from dataclasses import dataclass

FLOAT, NUMERIC, INTEGER, BOOL, ANY = "f", "fiu", "iu", "b", "fiub"


@dataclass(frozen=True)
class Rule:
    """Tensors that an op takes, and the dtype that it gives.

    Args:
        tensors: names of its arguments that are tensors, or lists of them, of one dtype.
        kinds: of that dtype.
        numbers: of `tensors`, how many may be Python numbers instead.
        others: names of further tensors, and their kinds.
        gives: the dtype of the result; empty: that of `tensors`.
    """

    tensors: tuple[str, ...] = ("x",)
    kinds: str = ANY
    numbers: tuple[str, ...] = ()
    others: tuple[tuple[str, str], ...] = ()
    gives: str = ""

    @property
    def skips(self) -> int:
        """How many arguments stand before those of `tensors`."""
        return int("condition" in dict(self.others))


_PAIR = ("x", "y")
_FLOATS = (
    *("exp", "log", "log1p", "expm1", "sqrt", "softplus", "sigmoid", "tanh", "atanh", "erf", "relu", "huber"),
    *("mean", "var", "std", "norm", "softmax", "log_softmax", "logsumexp"),
)
_SHAPES = ("reshape", "permute_dims", "flip", "expand_dims", "squeeze", "split", "broadcast_to")

RULES: dict[str, Rule] = {
    **{name: Rule(kinds=FLOAT) for name in _FLOATS},
    **{
        name: Rule(kinds=NUMERIC) for name in ("square", "abs", "sign", "sum", "max", "min", "cumulative_sum")
    },
    **{name: Rule(_PAIR, NUMERIC, numbers=("y",)) for name in ("minimum", "maximum")},
    "power": Rule(_PAIR, NUMERIC, numbers=_PAIR),
    "clip": Rule(("x", "min", "max"), NUMERIC, numbers=("min", "max")),
    "where": Rule(_PAIR, ANY, numbers=_PAIR, others=(("condition", BOOL),)),
    "isfinite": Rule(kinds=FLOAT, gives="bool"),
    **{name: Rule(_PAIR, BOOL) for name in ("logical_and", "logical_or")},
    "logical_not": Rule(kinds=BOOL),
    "argmax": Rule(kinds=NUMERIC, gives="int64"),
    "matmul": Rule(_PAIR, FLOAT),
    "linear": Rule(("x", "weight", "bias"), FLOAT),
    "conv2d": Rule(("x", "weight"), FLOAT),
    "one_hot": Rule(("indices",), INTEGER, gives="float32"),
    "take": Rule(others=(("indices", INTEGER),)),
    "take_along_axis": Rule(others=(("indices", INTEGER),)),
    **{name: Rule() for name in _SHAPES},
    **{name: Rule(("xs",)) for name in ("stack", "concat")},
    **{name: Rule() for name in ("zeros_like", "ones_like", "stop_gradient")},
}
"""Of all ops but `shape`, `zeros`, `ones`, `asarray`, `cast` and `scan`, which are written out."""
