"""How modules of a checkpoint scale the uint8 parts of a Dict or Tuple: by the rule of the version that trained them.

The setting is `uint8_scale` of a `model_config`. Checkpoints say which rule the modules have where the rules differ;
those of versions before the setting say nothing, and their modules have the rule "row".
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from plugrad.config.module_specs import spaces_of, specs_of
from plugrad.errors import RestoreMismatchError
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad.networks.joined_input import uint8_rules_differ
from plugrad.rl_module import MultiRLModule, RLModule
from plugrad.types import ModuleID

KEY: Final = "uint8_scale"
"""In the metadata of a checkpoint: `{module_id: rule}` of the modules whose numbers depend on it."""
RULE, OLDER_RULE = "part", "row"


def byte_scales(modules: MultiRLModule) -> dict[ModuleID, str]:
    """The rules of built-in modules for which the rules differ."""
    return {module_id: rule for module_id, module in modules.items() if (rule := rule_of(module))}


def rule_of(module: RLModule) -> str | None:
    """The rule of a module; None if it does not matter, as for a user's own module."""
    if module.network is None or not uint8_rules_differ(module.observation_space):
        return None
    return str(module.model_config.get(KEY, RULE))


def keep_byte_scales(config: Any, metadata: Mapping[str, Any]) -> Any:
    """Set the older rule in the config of a checkpoint that says nothing of a rule.

    Args:
        config: of the checkpoint.
        metadata: of the checkpoint.

    Returns:
        The config, changed if necessary.
    """
    affected = [
        module_id
        for module_id, spec in specs_of(config).items()
        if (spec is None or spec.module_class is None) and uint8_rules_differ(spaces_of(config, module_id)[0])
    ]
    if not affected or isinstance(metadata.get(KEY), Mapping):
        return config
    config = config.rl_module(model_config={KEY: OLDER_RULE, **config.model_config})
    spec = config.rl_module_spec
    if isinstance(spec, RLModuleSpec):
        return config.rl_module(rl_module_spec=_with_older_rule(spec))
    if isinstance(spec, MultiRLModuleSpec):
        older = {
            module_id: _with_older_rule(each) if module_id in affected else each
            for module_id, each in spec.rl_module_specs.items()
        }
        return config.rl_module(rl_module_spec=replace(spec, rl_module_specs=older))
    return config


def _with_older_rule(spec: RLModuleSpec) -> RLModuleSpec:
    if not isinstance(spec, RLModuleSpec) or spec.module_class is not None or not spec.model_config:
        return spec
    return replace(spec, model_config={KEY: OLDER_RULE, **spec.model_config})


def check_byte_scales(
    modules: MultiRLModule, restored: Mapping[str, Any], metadata: Mapping[str, Any], path: Any
) -> None:
    """Refuse weights that were trained on numbers of another scale.

    Args:
        modules: that get the weights.
        restored: `{module_id: weights}` of the checkpoint.
        metadata: of the checkpoint.
        path: of the checkpoint.

    Raises:
        RestoreMismatchError: a module of the same id has another rule; says what to set.
    """
    saved = metadata.get(KEY)
    known = saved if isinstance(saved, Mapping) else {}
    for module_id, rule in byte_scales(modules).items():
        found = known.get(module_id, OLDER_RULE)
        if module_id in restored and found != rule:
            raise RestoreMismatchError(
                f"{path}: module {module_id!r} was trained with uint8 observations scaled by the rule "
                f"{str(found)[:20]!r}, and this one has the rule {rule!r}: build it with "
                f'model_config={{"{KEY}": "{OLDER_RULE if found == OLDER_RULE else RULE}"}}',
                mismatched={KEY: (found, rule)},
            )
