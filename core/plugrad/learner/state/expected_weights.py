"""The expected weights of a saved learner, compared before anything is built."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad.networks import Network
from plugrad.networks.conv_filters import channels_first, is_image
from plugrad.rl_module import check_same_arrays
from plugrad.types import COMPONENT_RL_MODULE, Array, ModuleID

_EXPECTED: Final[ContextVar[Any]] = ContextVar("plugrad_expected_weights", default=None)


@dataclass(frozen=True)
class _Shape:
    """The shape of an array that is not made yet."""

    shape: tuple[int, ...]
    dtype: Any


@contextmanager
def expect_weights(state: Mapping[str, Any]) -> Iterator[None]:
    """A block that builds learners for a saved state: settings whose weights do not fit are refused before building.

    Args:
        state: from `Learner.get_state`, with the component "rl_module"; other components are ignored.
    """
    weights = state.get(COMPONENT_RL_MODULE) if isinstance(state, Mapping) else None
    token = _EXPECTED.set(weights if isinstance(weights, Mapping) else {})
    try:
        yield
    finally:
        _EXPECTED.reset(token)


def are_weights_expected() -> bool:
    """Whether the caller is in a block of `expect_weights`."""
    return _EXPECTED.get() is not None


def check_module_ids(module_ids: Collection[ModuleID]) -> None:
    """Refuse modules that are not among the expected weights.

    Raises:
        RestoreMismatchError: there are some; lists them.
    """
    expected = _EXPECTED.get()
    if expected is not None:
        missing = {each: _Shape((), "weights") for each in module_ids if each not in expected}
        check_same_arrays(missing, {}, where="the settings")


def expected_weights(module_id: ModuleID, network: Network) -> dict[str, Array] | None:
    """A copy of a module's expected weights, in the order of the network's parameters.

    Args:
        module_id: the module's id.
        network: its network.

    Returns:
        `{name: float32 array}`; None if no weights are expected: the module then draws its own.

    Raises:
        RestoreMismatchError: the network's parameters have other names or shapes; lists all differences.
    """
    expected = _EXPECTED.get()
    if expected is None:
        return None
    found = expected.get(module_id)
    wanted = {each.name: _Shape(each.shape, _dtype(found, each.name)) for each in network.parameters}
    check_same_arrays({module_id: wanted}, {module_id: found}, where="the settings")
    return {each.name: np.array(found[each.name], np.float32) for each in network.parameters}


def _dtype(found: Any, name: str) -> Any:
    """The dtype of the saved weight if it is a float: backends may save another precision than float32."""
    dtype = getattr(found.get(name) if isinstance(found, Mapping) else None, "dtype", np.dtype(np.float32))
    return dtype if dtype.kind == "f" else np.dtype(np.float32)


_DENSE: Mapping[str, Any] = {"conv_filters": []}


def keep_dense_encoders(config: Any, state: Mapping[str, Any]) -> Any:
    """Set `conv_filters = []` in the config of a checkpoint whose image modules have no convolutions.

    Versions without convolutions made dense layers for images from settings that now make convolutions.

    Args:
        config: of the checkpoint.
        state: of the checkpoint: a learner's, or an algorithm's that contains one.

    Returns:
        The config, changed if necessary.
    """
    learner = state.get("learner", state)
    modules = learner.get("rl_module") if isinstance(learner, Mapping) else None
    if not isinstance(modules, Mapping) or any(_has_convolutions(each) for each in modules.values()):
        return config
    spec = config.rl_module_spec
    if isinstance(spec, MultiRLModuleSpec):
        specs = {module_id: _dense_spec(each, config) for module_id, each in spec.rl_module_specs.items()}
        config = config.rl_module(rl_module_spec=replace(spec, rl_module_specs=specs))
    elif isinstance(spec, RLModuleSpec):
        config = config.rl_module(rl_module_spec=_dense_spec(spec, config))
    if _had_no_convolutions(config.observation_space, config.model_config):
        config = config.rl_module(model_config={**config.model_config, **_DENSE})
    return config


def _dense_spec(spec: Any, config: Any) -> Any:
    if spec is None or spec.module_class is not None:
        return spec
    settings = spec.model_config or config.model_config
    if not _had_no_convolutions(spec.observation_space, settings):
        return spec
    return replace(spec, model_config={**settings, **_DENSE})


def _had_no_convolutions(space: Any, model_config: Mapping[str, Any]) -> bool:
    if model_config.get("conv_filters") is not None:
        return False
    return is_image(space) or channels_first(getattr(space, "shape", None) or ())


def _has_convolutions(parameters: Any) -> bool:
    return isinstance(parameters, Mapping) and any(".conv." in str(name) for name in parameters)
