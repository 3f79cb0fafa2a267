"""What a module computes of the observations after each step, for rows and for sequences."""

from collections.abc import Mapping

from plugrad.columns import Columns
from plugrad.ops import Ops
from plugrad.types import Tensor


def next_columns(ops: Ops, batch: Mapping[str, Tensor], **columns: Tensor) -> dict[str, Tensor]:
    """The columns with which a module computes what it says of `new_obs`; then `of_next` takes its outputs.

    Of sequences, the first observation goes before those that follow the steps. So a module sees each next observation
    in the state after all observations before it (Kapturowski et al. 2019, R2D2, section 2.3), and target networks
    begin in the same recorded state.

        outputs = learner.targets[module_id].forward(next_columns(ops, batch))
        values = of_next(batch, outputs["qf_preds"], inner=1)

    Args:
        ops: tensor functions.
        batch: obs and new_obs [B, ...]; of sequences [B, T, ...], with state_in.
        **columns: others at the next observations, [B, ...] or [B, T, ...].

    Returns:
        OBS and the other columns; of sequences [B, T + 1, ...], with STATE_IN.
    """
    later = {Columns.OBS: batch[Columns.NEXT_OBS], **columns}
    if Columns.STATE_IN not in batch:
        return later
    first = {name: values[:, :1] for name, values in later.items()} | {Columns.OBS: batch[Columns.OBS][:, :1]}
    joined = {name: ops.concat([first[name], values], 1) for name, values in later.items()}
    return {**joined, Columns.STATE_IN: batch[Columns.STATE_IN]}


def of_next(batch: Mapping[str, Tensor], values: Tensor, inner: int = 0) -> Tensor:
    """The part of what a module computed with `next_columns` that belongs to `new_obs`.

    Args:
        batch: as there.
        values: [..., B, *inner], or of sequences [..., B, T + 1, *inner].
        inner: number of axes behind rows or steps.

    Returns:
        [..., B, *inner], or [..., B, T, *inner].
    """
    if Columns.STATE_IN not in batch:
        return values
    return values[(..., slice(1, None), *[slice(None)] * inner)]


def with_state(batch: Mapping[str, Tensor], columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Columns for another forward pass over the steps of a batch, which begins in the recorded state if there is one.

    Args:
        batch: has STATE_IN if the module is stateful.
        columns: of the same rows or sequences.

    Returns:
        The columns, with STATE_IN.
    """
    state = {Columns.STATE_IN: batch[Columns.STATE_IN]} if Columns.STATE_IN in batch else {}
    return {**columns, **state}
