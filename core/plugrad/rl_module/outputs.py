"""Outputs of users' models: converting them to columns, and checking them against the spaces."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import gymnasium as gym
import numpy as np

from plugrad.columns import Columns
from plugrad.distributions import Distribution
from plugrad.errors import BatchError, MissingColumnError, NonFiniteBatchError, did_you_mean
from plugrad.observations import row_parts, row_shape
from plugrad.spaces.layout import structure_leaves
from plugrad.types import Array, Tensor

if TYPE_CHECKING:
    from plugrad.rl_module.rl_module import RLModule

Shape = tuple[int | None, ...]
"""Lengths of the axes; None where tracing does not know one."""


class Outputs(dict[str, Tensor]):
    """The columns that a user's model returned: a dict whose error for a missing column names the model.

    Args:
        model: the name of the model's class.
        columns: `{column: tensor}`.
    """

    def __init__(self, model: str, columns: Mapping[str, Tensor]) -> None:
        super().__init__(columns)
        self._model = model

    def __missing__(self, column: str) -> NoReturn:
        hint = "; docs/module-contracts.md has what each algorithm asks of a module"
        if column == Columns.VF_PREDS:
            hint = "; a plain model returns (inputs, values) for it"
        raise MissingColumnError(
            f"{self._model} returned no {column!r}, which is needed here; expected that column, found only: "
            f"{', '.join(self) or 'none'}{hint}.{did_you_mean(column, self)}",
            column=column,
            expected=column,
            found=list(self),
        )


def columns_of_outputs(outputs: Any) -> dict[str, Any]:
    """Convert the outputs of a user's plain model (`torch.nn.Module`, Keras model) to columns.

    Args:
        outputs: `{column: tensor}`, `(inputs, values)` or `inputs`: the action distribution's inputs [B, inputs], and
            values [B] or [B, 1], or None.

    Returns:
        `{column: tensor}`: ACTION_DIST_INPUTS [B, inputs] and VF_PREDS [B], or the model's own dict. Anything else is
        returned unchanged, and `check_outputs` refuses it.
    """
    if isinstance(outputs, Mapping):
        columns = dict(outputs)
    elif isinstance(outputs, tuple | list) and len(outputs) in (1, 2):
        columns = dict(zip((Columns.ACTION_DIST_INPUTS, Columns.VF_PREDS), outputs, strict=False))
    elif hasattr(outputs, "shape"):
        columns = {Columns.ACTION_DIST_INPUTS: outputs}
    else:
        refused: dict[str, Any] = outputs
        return refused
    columns = {name: each for name, each in columns.items() if each is not None}
    values: Any = columns.get(Columns.VF_PREDS)
    if hasattr(values, "shape") and len(values.shape) > 1 and values.shape[-1] == 1:
        columns[Columns.VF_PREDS] = values[..., 0]
    return columns


def check_outputs(
    module: "RLModule",
    outputs: Any,
    batch: Mapping[str, Tensor],
    distribution: Callable[[], type[Distribution]],
) -> Outputs:
    """Check the columns that a user's module returned: types, shapes and dtypes. Traced or not.

    Args:
        module: a module that is not a built-in network.
        outputs: what it returned.
        batch: its input. If it did not read OBS, shapes are not checked.
        distribution: returns the class that takes ACTION_DIST_INPUTS.

    Returns:
        The columns.

    Raises:
        BatchError: the outputs are not columns, or ACTION_DIST_INPUTS or VF_PREDS has a wrong shape or dtype.
    """
    if not isinstance(outputs, Mapping):
        expected = "inputs of the action distribution, (inputs, values), or {column: tensor}"
        raise _error(module.class_name, None, expected, describe(outputs))
    obs = getattr(batch, "taken", batch).get(Columns.OBS)
    if obs is not None and module.observation_space is not None:
        leaf, inner = _first_leaf(module.observation_space, obs)
        leading = tuple(leaf.shape)[: len(leaf.shape) - len(inner)]
        check = _Check(module.class_name, outputs, leading, isinstance(leaf, np.ndarray))
        if Columns.ACTION_DIST_INPUTS in outputs and module.action_space is not None:
            check.inputs(distribution(), module.action_space)
        if Columns.VF_PREDS in outputs:
            check.values()
    return Outputs(module.class_name, outputs)


def _first_leaf(space: Any, obs: Any) -> tuple[Any, Shape]:
    """One tensor of the observations, in the structure of the space or as rows, and its shape without batch axes."""
    if not isinstance(obs, Mapping | tuple):
        return obs, row_shape(space)
    inner = row_parts(space)[0].shape
    return structure_leaves(space, obs)[0], inner


@dataclass(frozen=True)
class _Check:
    model: str
    outputs: Mapping[str, Any]
    leading: Shape
    in_numpy: bool
    """Whether the model computes in numpy, where any precision is allowed."""

    def inputs(self, distribution: Any, space: gym.Space[Any]) -> None:
        """[B, inputs]. A class that is not a distribution is refused when sampling."""
        if (width := getattr(distribution, "input_dim", None)) is not None:
            words = f", the inputs of a {distribution.__name__} for {space}"
            self.column(Columns.ACTION_DIST_INPUTS, (width,), words)

    def values(self) -> None:
        """[B], or [B, 1], which a loss may refuse itself."""
        is_column = tuple(getattr(self.outputs[Columns.VF_PREDS], "shape", ()))[len(self.leading) :] == (1,)
        self.column(Columns.VF_PREDS, (1,) if is_column else (), ", one value for each observation")

    def column(self, column: str, width: Shape, words: str) -> None:
        found = self.outputs[column]
        if not (self._fits(found, width) and (self.in_numpy or _is_float32_tensor(found))):
            names = ("B", "T")[: len(self.leading)]
            sizes = [f"{name} = {size}" for name, size in zip(names, self.leading, strict=True) if size]
            where = f" with {', '.join(sizes)}" if sizes else ""
            expected = f"float32 [{', '.join((*names, *map(str, width)))}]{where}{words}"
            raise _error(self.model, column, expected, describe(found))

    def _fits(self, found: Any, width: Shape) -> bool:
        expected, shape = (*self.leading, *width), tuple(getattr(found, "shape", ()))
        return len(shape) == len(expected) and all(
            None in pair or pair[0] == pair[1] for pair in zip(shape, expected, strict=True)
        )


def _is_float32_tensor(values: Any) -> bool:
    return not isinstance(values, np.ndarray) and "float32" in str(getattr(values, "dtype", ""))


def _error(model: str, column: str | None, expected: str, found: str) -> BatchError:
    what = found if column is None else f"{column!r} as {found}"
    return BatchError(
        f"{model} returned {what}; expected {expected}", column=column, expected=expected, found=found
    )


def describe(values: Any) -> str:
    """Dtype and shape of a tensor or an array, such as "float32 [32, 2]"; for anything else its type."""
    if isinstance(values, Mapping):
        return f"{{{', '.join(f'{name}: {describe(each)}' for name, each in values.items())}}}"
    if isinstance(values, tuple | list):
        return f"a {type(values).__name__} of {len(values)}"
    if not hasattr(values, "dtype") or not hasattr(values, "shape"):
        return str(values) if values is None else f"a {type(values).__name__}"
    dtype = getattr(values.dtype, "name", str(values.dtype).rpartition(".")[2])
    kind = "a numpy array " if isinstance(values, np.ndarray) else ""
    return f"{kind}{dtype} [{', '.join('?' if each is None else str(each) for each in values.shape)}]"


def check_numbers(model: str, columns: Mapping[str, Array]) -> Outputs:
    """Refuse NaN and +infinity in the acting outputs of a user's model; -infinity masks a choice out.

    Args:
        model: the name of the model's class, for the error.
        columns: numpy arrays.

    Returns:
        The columns.

    Raises:
        NonFiniteBatchError: ACTION_DIST_INPUTS or VF_PREDS has such a number.
    """
    for column in (Columns.ACTION_DIST_INPUTS, Columns.VF_PREDS):
        if column in columns and not (is_good := columns[column] < np.inf).all():
            found = f"{len(set(np.argwhere(~is_good)[:, 0]))} of {len(is_good)} rows"
            raise NonFiniteBatchError(
                f"{model} returned {column!r} with NaN or infinity in {found}; expected finite numbers: look for such "
                "in its weights and in the observations",
                column=column,
                expected="finite numbers",
                found=found,
            )
    return Outputs(model, columns)
