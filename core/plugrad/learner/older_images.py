"""Image networks of older checkpoints: images that have convolutions today had dense layers, and keep them.

Knows what a config says of spaces and networks, and the names of parameters in a state.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from plugrad.conv_filters import channels_first, is_image
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec

_DENSE: Mapping[str, Any] = {"conv_filters": []}


def keeping_dense_layers(config: Any, state: Mapping[str, Any]) -> Any:
    """The config of a checkpoint, `conv_filters = []` written where its modules of images have no convolutions.

    Args:
        config: of the checkpoint.
        state: of the checkpoint: a learner's, or an algorithm's with one in it.
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
    if _had_none(config.observation_space, config.model_config):
        config = config.rl_module(model_config={**config.model_config, **_DENSE})
    return config


def _dense_spec(spec: Any, config: Any) -> Any:
    if spec is None or spec.module_class is not None:
        return spec
    settings = spec.model_config or config.model_config
    if not _had_none(spec.observation_space, settings):
        return spec
    return replace(spec, model_config={**settings, **_DENSE})


def _had_none(space: Any, model_config: Mapping[str, Any]) -> bool:
    if model_config.get("conv_filters") is not None:
        return False
    return is_image(space) or channels_first(getattr(space, "shape", None) or ())


def _has_convolutions(parameters: Any) -> bool:
    return isinstance(parameters, Mapping) and any(".conv." in str(name) for name in parameters)
