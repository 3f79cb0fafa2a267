"""Columns that stay on a device: tensors of any library are taken by DLPack, padded and standardised where they are."""

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from plugrad.batch import refuse
from plugrad.batch.forms import SampleCount, are_sequences
from plugrad.columns import Columns
from plugrad.ops import Ops
from plugrad.types import Array, ModuleID, Tensor

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

LEAST_ROWS = 16
EPSILON = 1e-8
"""Added to a standard deviation before dividing by it, as in stable-baselines3 and CleanRL."""
_CPU: Final = 1
"""The number of the host's memory in DLPack: `kDLCPU` of its header `dlpack.h`."""


def is_elsewhere(values: Any) -> bool:
    """Whether an object with `__dlpack__` is not in the memory of the host, where numpy reads it without a copy."""
    return hasattr(values, "__dlpack_device__") and int(values.__dlpack_device__()[0]) != _CPU


def stays_there(learner: "Learner", values: Any) -> bool:
    """Whether an update computes with a column on the learner's device; in the host's memory numpy reads it.

    Args:
        learner: the learner.
        values: an array, or a tensor of the learner's framework.
    """
    return learner.device not in learner.backend_info.host_devices and not isinstance(values, np.ndarray)


def on_device(learner: "Learner", module_id: ModuleID, values: Any, column: str = Columns.OBS) -> Tensor:
    """A tensor of the learner's framework of anything with `__dlpack__`; not copied if it is on the learner's device.

    Args:
        learner: the learner.
        module_id: the module, for the error.
        values: a tensor of any framework.
        column: its column, for the error.

    Raises:
        BatchError: it is no tensor, or the backend cannot read it.
    """
    if not hasattr(values, "__dlpack__"):
        refuse(module_id, column, "a tensor, or an object with __dlpack__", type(values).__name__)
    try:
        return learner._convert_batch_type({column: values})[column]
    except Exception as error:
        name = f"{type(values).__module__.partition('.')[0]}'s {type(values).__name__}"
        refuse(module_id, column, *what_to_type(name, str(error)))


def what_to_type(name: str, why: str) -> tuple[str, str]:
    """What is expected and what was found, of a tensor that cannot be read.

    Args:
        name: of its library and class.
        why: it cannot be read.
    """
    expected = "an array, or a tensor of the learner's framework on any device"
    return (
        expected,
        f"{name}, which is no array here ({why}): give a float32 array, such as its .numpy() on the CPU",
    )


def count_samples_there(
    learner: "Learner", module_id: ModuleID, columns: Mapping[str, Any]
) -> tuple[dict[str, Any], SampleCount] | None:
    """`count_samples` of columns that stay on the device: the host reads their mask alone.

    Args:
        learner: the learner.
        module_id: the module.
        columns: its columns: rows with `loss_mask` [B], or sequences with `seq_lens` as an array.

    Returns:
        The columns, without `seq_lens`, and of rows those that count, without a mask; and their number. None if the
        host has to do it: columns are there, the module has a recurrent state, sequences are padded or wholly hidden,
        or steps have to become zeros.
    """
    lengths, there = columns.get(Columns.SEQ_LENS), dict(columns)
    there.pop(Columns.SEQ_LENS, None)
    module, ops, actions = learner.module[module_id], learner.ops, columns.get(Columns.ACTIONS)
    if (
        actions is None
        or module.is_stateful
        or not all(stays_there(learner, each) for each in there.values())
    ):
        return None
    mask = there.get(Columns.LOSS_MASK)
    shape = ops.shape(actions)[: 2 if are_sequences(columns, module) else 1]
    counts = np.ones(shape, bool) if mask is None else learner._convert_to_numpy(mask)
    if counts.dtype != bool or counts.shape != shape or not counts.any():
        return None
    if len(shape) == 1:
        there.pop(Columns.LOSS_MASK, None)
        kept = learner._convert_batch_type({"rows": np.flatnonzero(counts)})["rows"]
        taken = {column: ops.take(each, kept) for column, each in there.items()}
        return taken, SampleCount(int(counts.sum()), int(counts.sum()))
    has_padding = lengths is not None and bool((np.asarray(lengths) != shape[1]).any())
    has_to_hide = not (learner.config.reads_masked_steps or counts.all())
    if has_padding or has_to_hide or not counts.any(1).all():
        return None
    return there, SampleCount(len(counts), int(counts.sum()))


def pad_tensor(ops: Ops, values: Tensor) -> Tensor:
    """`pad_rows` of a tensor, where it is.

    Args:
        ops: tensor functions.
        values: [B, ...], at least one row.

    Returns:
        [rows, ...], rows the next power of two, at least `LEAST_ROWS`.
    """
    count, *inner = ops.shape(values)
    missing = max(LEAST_ROWS, 1 << (count - 1).bit_length()) - count
    if not missing:
        return values
    return ops.concat([values, ops.broadcast_to(ops.zeros_like(values[:1]), (missing, *inner))], 0)


def standardized_there(learner: "Learner", values: Tensor, rows: Array) -> Tensor:
    """`standardize` of the rows of a tensor, in float32 where the tensor is."""
    ops = learner.ops
    there = learner._convert_batch_type({"values": values, "rows": rows.reshape(-1)})
    taken = ops.take(there["values"], there["rows"])
    taken = ops.cast(ops.reshape(taken, (*rows.shape, *ops.shape(values)[1:])), "float32")
    axes = tuple(range(1, len(ops.shape(taken))))
    number = prod(ops.shape(taken)[1:])
    if number == 1:
        return taken
    centred = taken - ops.mean(taken, axes, keepdims=True)
    std = ops.sqrt(ops.sum(ops.square(centred), axes, keepdims=True) / (number - 1))
    return centred / (std + EPSILON)
