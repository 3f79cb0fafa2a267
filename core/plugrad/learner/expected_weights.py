"""Which weights a saved learner must have, compared before anything is built."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from plugrad.networks import Network
from plugrad.rl_module import check_same_arrays
from plugrad.types import COMPONENT_RL_MODULE, Array, ModuleID

_EXPECTED: Final[ContextVar[Any]] = ContextVar("plugrad_expected_weights", default=None)


@dataclass(frozen=True)
class _Shape:
    """An array that is not there yet."""

    shape: tuple[int, ...]
    dtype: Any


@contextmanager
def expect_weights(state: Mapping[str, Any]) -> Iterator[None]:
    """Build learners for a saved state: refuse settings whose weights do not fit before anything is built.

    Args:
        state: of `Learner.get_state`, with the component "rl_module"; other parts are not looked at.
    """
    weights = state.get(COMPONENT_RL_MODULE) if isinstance(state, Mapping) else None
    token = _EXPECTED.set(weights if isinstance(weights, Mapping) else {})
    try:
        yield
    finally:
        _EXPECTED.reset(token)


def are_weights_expected() -> bool:
    """Whether learners are built for a saved state now."""
    return _EXPECTED.get() is not None


def check_module_ids(module_ids: Collection[ModuleID]) -> None:
    """Refuse modules whose weights are not among those that are expected.

    Raises:
        RestoreMismatchError: lists them.
    """
    expected = _EXPECTED.get()
    if expected is not None:
        missing = {each: _Shape((), "weights") for each in module_ids if each not in expected}
        check_same_arrays(missing, {}, where="the settings")


def expected_weights(module_id: ModuleID, network: Network) -> dict[str, Array] | None:
    """A copy of the weights that a module is to have, in the order of the network's parameters.

    Args:
        module_id: of the module.
        network: that computes with them.

    Returns:
        `{name: float32 array}`; None if none are expected, so that the module begins with weights of its own.

    Raises:
        RestoreMismatchError: the network has parameters of other names or shapes; lists all differences.
    """
    expected = _EXPECTED.get()
    if expected is None:
        return None
    found = expected.get(module_id)
    wanted = {each.name: _Shape(each.shape, _dtype(found, each.name)) for each in network.parameters}
    check_same_arrays({module_id: wanted}, {module_id: found}, where="the settings")
    return {each.name: np.array(found[each.name], np.float32) for each in network.parameters}


def _dtype(found: Any, name: str) -> Any:
    """That of the saved weight if it is a float: backends may save another precision than float32."""
    dtype = getattr(found.get(name) if isinstance(found, Mapping) else None, "dtype", np.dtype(np.float32))
    return dtype if dtype.kind == "f" else np.dtype(np.float32)
