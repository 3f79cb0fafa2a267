"""`check_timesteps`: the argument `timesteps` of an update."""

from collections.abc import Mapping
from math import isfinite
from numbers import Real
from typing import Any

from plugrad.errors import BatchError
from plugrad.learner.update.default_hooks import TIMESTEP


def check_timesteps(timesteps: Any) -> None:
    """Check that it maps names to finite numbers, and has the entry that schedules read.

    Raises:
        BatchError: it is anything else.
    """
    good = timesteps is None or isinstance(timesteps, Mapping)
    if not good or not all(isinstance(each, Real) and isfinite(each) for each in (timesteps or {}).values()):
        raise BatchError(
            f"timesteps: expected numbers by name, such as {{{TIMESTEP!r}: 4096}}, found {timesteps!r}",
            module_id=None,
            column=None,
            expected="numbers by name",
            found=timesteps,
        )
    if timesteps and TIMESTEP not in timesteps:
        raise BatchError(
            f"timesteps: the schedules read {TIMESTEP!r}, found only {', '.join(map(repr, timesteps))}; "
            "give it too, or leave timesteps out to keep the schedules where they are",
            module_id=None,
            column=None,
            expected=TIMESTEP,
            found=list(timesteps),
        )
