"""The columns of a replay buffer, and those that a config asks for."""

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from plugrad.action_rows import action_dtype, action_shape
from plugrad.columns import Columns
from plugrad.episodes import MASKS
from plugrad.errors import ConfigError, RestoreMismatchError
from plugrad.module_spec import spaces_of
from plugrad.observations import model_space, row_shape, row_space
from plugrad.replay.sequences import SequenceForm
from plugrad.types import Array, ModuleID

_log = logging.getLogger("plugrad")

Shapes = Mapping[str, tuple[int, ...]]


def check_sequences(config: Any, module_id: ModuleID) -> None:
    """Refuse settings that rows have and sequences have not.

    Args:
        config: of the algorithm.
        module_id: a module with a recurrent state.

    Raises:
        ConfigError: one of them is set.
    """
    own = config.get_config_for_module(module_id)
    for name, value in {"n_step": 1, "hindsight": None}.items():
        if (found := getattr(own, name)) != value:
            raise ConfigError(
                f"module {module_id!r} has a recurrent state and learns from sequences of single steps, and "
                f"{name}={found!r}; set {name}={value!r}",
                field=name,
                found=found,
                expected=value,
            )


def check_columns(found: Shapes, config: Any, module_id: ModuleID, form: SequenceForm | None = None) -> None:
    """Compare the columns of a replay buffer with those of transitions.

    Args:
        found: `{column: shape of one row}`; empty for an empty buffer.
        config: the config with the spaces.
        module_id: the buffer's module.
        form: of its sequences; None: it has rows.

    Raises:
        RestoreMismatchError: a column is missing, or its rows have another shape.
    """
    expected = _row_shapes(config, module_id, form) if found else {}
    missing = [column for column in expected if column not in found]
    others = [
        f"{column}: {found[column]}, expected {shape}"
        for column, shape in expected.items()
        if found.get(column, shape) != shape
    ]
    if missing or others:
        raise RestoreMismatchError(
            f"the replay buffer of module {module_id!r} does not fit: "
            + "; ".join([*(f"no column {column!r}" for column in missing), *others]),
            missing=missing,
        )


def with_masks_of(found: Shapes, rows: Mapping[str, Array], module_id: ModuleID) -> Mapping[str, Array]:
    """Leave out action masks if a buffer's rows have none, because its checkpoint is of a version without masks.

    Args:
        found: `{column: shape of one row}` of the buffer; empty for an empty one.
        rows: the rows to add.
        module_id: the buffer's module.

    Returns:
        The rows.
    """
    unknown = [column for column in MASKS if found and column in rows and column not in found]
    if not unknown:
        return rows
    _say_without_masks(module_id)
    return {column: values for column, values in rows.items() if column not in unknown}


@cache
def _say_without_masks(module_id: ModuleID) -> None:
    _log.warning(
        "the replay buffer of module %r has rows of an older version, without action masks: actions are masked, "
        "targets are not. A run that begins anew has masks in both",
        module_id,
    )


def example_row(config: Any, module_id: ModuleID, form: SequenceForm | None = None) -> dict[str, Array]:
    """A row of a module's replay buffer, of zeros and without action masks.

    Args:
        config: the config with the spaces.
        module_id: the buffer's module.
        form: of its sequences; None: it has rows.

    Returns:
        `{column: [1, ...]}`.

    Raises:
        ConfigError: observations of the module's space are no arrays of numbers.
    """
    observation_space, action_space = spaces_of(config, module_id)
    dtypes: dict[str, Any] = {
        Columns.OBS: row_space(model_space(observation_space)).dtype,
        Columns.ACTIONS: action_dtype(action_space),
        Columns.TERMINATEDS: np.bool_,
        Columns.LOSS_MASK: np.bool_,
    }
    dtypes[Columns.NEXT_OBS] = dtypes[Columns.OBS]
    return {
        column: np.zeros((1, *shape), dtypes.get(column, np.float32))
        for column, shape in _row_shapes(config, module_id, form).items()
    }


def _row_shapes(config: Any, module_id: ModuleID, form: SequenceForm | None) -> Shapes:
    observation_space, action_space = spaces_of(config, module_id)
    observation, action = row_shape(observation_space), action_shape(action_space) or ()
    columns = {Columns.OBS: observation, Columns.ACTIONS: action, Columns.NEXT_OBS: observation}
    columns |= dict.fromkeys((Columns.REWARDS, Columns.TERMINATEDS, Columns.N_STEP), ())
    return columns if form is None else form.row_shapes(columns)
