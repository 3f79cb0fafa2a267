"""What a checkpoint may ask for: no code, only weights that fit, and the rules of the version that trained them.

A checkpoint is a file of a stranger, so all this is checked before anything is built from it.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from plugrad.config.module_specs import spaces_of, specs_of
from plugrad.config.named_code import names_in_list
from plugrad.config.sampling_settings import CODE_OF_SAMPLING
from plugrad.errors import ConfigError, RestoreMismatchError
from plugrad.importing.names import importable_name
from plugrad.importing.trusted_names import reason_against
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad.networks import Network
from plugrad.networks.conv_filters import channels_first, is_image
from plugrad.networks.joined_input import uint8_rules_differ
from plugrad.rl_module import MultiRLModule, RLModule, check_same_arrays
from plugrad.rl_module.random_module import RandomRLModule
from plugrad.types import COMPONENT_RL_MODULE, DEFAULT_MODULE_ID, Array, ModuleID

# --- no code ---

_FREE: Final = ("gymnasium.wrappers:", "gymnasium.wrappers.", "plugrad.sampling.faults:")
"""Wrappers that a checkpoint may name, just as it may name Gymnasium ids."""

_OWN_MODULES: Final = (importable_name(RandomRLModule),)
"""Module classes that are part of the core."""

_INSTEAD: Final = {
    **{name: f"give {name}= to Algorithm.from_checkpoint" for name in CODE_OF_SAMPLING},
    "module": "give module_spec= to Algorithm.from_checkpoint, module= or module_spec= to Learner.from_checkpoint, "
    "module= to plugrad.load_policy",
}


def refuse_code(config_class: Any, data: Mapping[str, Any]) -> None:
    """Refuse settings that name code to import.

    Args:
        config_class: the class of the config.
        data: the settings in the checkpoint.

    Raises:
        ConfigError: one of them names code; says what to give instead.
    """
    for name, info in config_class.fields().items():
        if info.importable and isinstance(data.get(name), str) and ":" in data[name]:
            raise _code_refused(name, data[name])
        for each in names_in_list(data.get(name)) if info.code else ():
            if not each.startswith(_FREE) or reason_against(each, info.code):
                raise _code_refused(name, each)


def refuse_own_modules(config: Any) -> None:
    """Raise `ConfigError` if a config read from a checkpoint names the class of a module."""
    _refuse_own_modules(config.rl_module_spec)
    _refuse_own_modules(MultiRLModuleSpec(rl_module_specs=_policies(config)))


def _policies(config: Any) -> Mapping[str, Any]:
    return config.policies if isinstance(config.policies, Mapping) else {}


def _refuse_own_modules(spec: Any) -> None:
    for module_id, each in getattr(spec, "rl_module_specs", {DEFAULT_MODULE_ID: spec}).items():
        named = getattr(each, "module_class", None)
        if isinstance(named, str) and named not in _OWN_MODULES:
            raise _code_refused(f"module {module_id!r}", each.module_class)


def _code_refused(what: str, code: Any) -> ConfigError:
    instead = _INSTEAD.get(what.split()[0])
    return ConfigError(
        f"{what} of this checkpoint is {code}, and a checkpoint imports no code: "
        f"{f'{instead}, or ' if instead else ''}build from your config and restore_from_path"
    )


# --- the expected weights of a saved learner, compared before anything is built ---

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


# --- byte scales ---
#
# How modules of a checkpoint scale the uint8 parts of a Dict or Tuple: by the rule of the version that trained
# them.
#
# The setting is `uint8_scale` of a `model_config`. Checkpoints say which rule the modules have where the rules
# differ; those of versions before the setting say nothing, and their modules have the rule "row".

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
