"""The modules that a config names: their ids, specs and spaces."""

from collections.abc import Mapping
from typing import Any

from plugrad.errors import ConfigError
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad.types import DEFAULT_MODULE_ID, ModuleID


def specs_of(config: Any) -> dict[ModuleID, RLModuleSpec | None]:
    """The spec of each module that `rl_module_spec` or `policies` names; None if neither has a spec for it.

    `policies={id: spec}` gives a module its own spec; `rl_module_spec=RLModuleSpec(...)` is for all other modules.

    Raises:
        ConfigError: a module has two different specs.
    """
    common = config.rl_module_spec
    own = common.rl_module_specs if isinstance(common, MultiRLModuleSpec) else {}
    others = _policies(config, not own)
    for module_id, spec in others.items():
        if None not in (spec, own.get(module_id)) and spec != own[module_id]:
            raise ConfigError(
                f"module {module_id!r} has two specs: policies says {spec!r:.200} and rl_module_spec "
                f"{own[module_id]!r:.200}; give one of them",
                module_id=module_id,
            )
    default = None if isinstance(common, MultiRLModuleSpec) else common
    return {**{module_id: default if spec is None else spec for module_id, spec in others.items()}, **own}


def names_modules(config: Any) -> bool:
    """Whether a config names modules; else there is the default one, or those that a learner is given."""
    return config.policies is not None or isinstance(config.rl_module_spec, MultiRLModuleSpec)


def spaces_of(config: Any, module_id: ModuleID) -> tuple[Any, Any]:
    """The spaces of one module: its spec's, or else the config's.

    Args:
        config: an `AlgorithmConfig`.
        module_id: the module.

    Returns:
        `(observation_space, action_space)`; None if neither has one.
    """
    spec = (specs_of(config).get(module_id) or RLModuleSpec()).complete(
        config.observation_space, config.action_space
    )
    return spec.observation_space, spec.action_space


def _policies(config: Any, is_alone: bool) -> dict[ModuleID, RLModuleSpec | None]:
    """`policies` as a dict; the default module if nothing else names one."""
    if config.policies is None:
        return {DEFAULT_MODULE_ID: None} if is_alone else {}
    return dict(config.policies) if isinstance(config.policies, Mapping) else dict.fromkeys(config.policies)
