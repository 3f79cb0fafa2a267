"""Gradients must be named after parameters that an optimizer steps: others would be dropped and train nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from plugrad.errors import OptimizerError, UnknownParameterError, did_you_mean
from plugrad.gradients import FlatGradients, Layout


def check_names(gradients: Any, layouts: Sequence[Layout], where: str) -> None:
    """Refuse gradients of what no optimizer steps. Parameters may be left out: they stay as they are.

    Args:
        gradients: `{param ref: gradient or None}`.
        layouts: of the optimizers that may be meant.
        where: for the error: who made or was given these gradients.

    Raises:
        UnknownParameterError: a key is no parameter's name.
        OptimizerError: it is no mapping.
    """
    if isinstance(gradients, FlatGradients) and all(each in layouts for each in gradients.layouts):
        return
    if not isinstance(gradients, Mapping):
        raise OptimizerError(
            f"{where}: expected gradients by name, {{param ref: gradient}}, found {type(gradients).__name__}"
        )
    known = {ref: None for layout in layouts for ref in layout.refs}
    unknown = [ref if isinstance(ref, str) else type(ref).__name__ for ref in gradients if ref not in known]
    if unknown:
        shown = ", ".join(map(repr, unknown[:4])) + (
            f" and {len(unknown) - 4} more" if len(unknown) > 4 else ""
        )
        raise UnknownParameterError(
            f"{where}: gradients of {shown}, which no optimizer steps: keys are names such as "
            f"{next(iter(known), '<module id>/<parameter>')!r}, and learner.get_param_ref(param) gives a parameter's."
            f"{did_you_mean(unknown[0], known)}",
            unknown=unknown,
            known=list(known),
        )
