"""What may be built from a checkpoint: no code, nothing too large, by the rules of the version that trained it.

A checkpoint is a file of a stranger, so all this is checked before anything is built from it. Weights are compared
before a module is built, in `plugrad.learner.modules.build`.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from plugrad.checkpoint import Checkpoint
from plugrad.config import RAY, Config
from plugrad.config.from_files import check_numbers, check_size, names_in_list
from plugrad.config.sampling_settings import CODE_OF_SAMPLING
from plugrad.config.serialize import ALGORITHM_KEY
from plugrad.errors import AlgorithmNotFoundError, BackendNotFoundError, ConfigError
from plugrad.hooks.registry import check_installed, get_algorithm
from plugrad.importing.names import importable_name
from plugrad.importing.trusted_names import reason_against
from plugrad.learner.modules.build import expect_weights, with_spaces
from plugrad.learner.state.checkpoint import (
    ENV_OBSERVATION_SPACE,
    ENV_OBSERVATION_SPACES,
    OVERRIDES,
    as_checkpoint_error,
    load_state,
    owner_in_words,
    settings_of_spaces,
    stored_bytes,
)
from plugrad.learner.state.state import check_whole
from plugrad.model_config import OLDER_UINT8_RULE, UINT8_SCALE
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec, spaces_of, specs_of
from plugrad.networks.inputs import uint8_rules_differ
from plugrad.rl_module.random_module import RandomRLModule
from plugrad.sampling.environments import get_module_spaces, is_multi_agent
from plugrad.spaces.fit import NAMES
from plugrad.spaces.images import channels_first, is_image
from plugrad.spaces.layout import in_order_of
from plugrad.types import DEFAULT_MODULE_ID, StrPath

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
    spec = config.rl_module_spec
    specs = [getattr(spec, "rl_module_specs", {DEFAULT_MODULE_ID: spec})]
    specs += [config.policies] if isinstance(config.policies, Mapping) else []
    for module_id, each in [pair for named in specs for pair in named.items()]:
        named = getattr(each, "module_class", None)
        if isinstance(named, str) and named not in _OWN_MODULES:
            raise _code_refused(f"module {module_id!r}", named)


def _code_refused(what: str, code: Any) -> ConfigError:
    instead = _INSTEAD.get(what.split()[0])
    return ConfigError(
        f"{what} of this checkpoint is {code}, and a checkpoint imports no code: "
        f"{f'{instead}, or ' if instead else ''}build from your config and restore_from_path"
    )


# --- what older versions made of the same settings ---

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
    weights = list(modules.values()) if isinstance(modules, Mapping) else []
    names = [str(name) for each in weights if isinstance(each, Mapping) for name in each]
    if not isinstance(modules, Mapping) or any(".conv." in name for name in names):
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
    if not affected or isinstance(metadata.get(UINT8_SCALE), Mapping):
        return config
    config = config.rl_module(model_config={UINT8_SCALE: OLDER_UINT8_RULE, **config.model_config})
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
    return replace(spec, model_config={UINT8_SCALE: OLDER_UINT8_RULE, **spec.model_config})


# --- the config that a checkpoint asks for ---


def config_of(
    checkpoint: Checkpoint, *, backend: str | None = None, given: Collection[str] = (), to_act: bool = False
) -> Any:
    """The config that a checkpoint was saved with, optionally for another backend.

    Its algorithm is looked up by short name among the installed ones; nothing else is loaded.

    Args:
        checkpoint: from `load_state`.
        backend: a backend instead of the one that saved it.
        given: settings that the caller does not need, or replaces; they may name code.
        to_act: nothing samples, and settings that the algorithm does not have, such as those of a user's own config
            class, are left out.

    Returns:
        The config, without listeners and launcher.

    Raises:
        AlgorithmNotFoundError, BackendNotFoundError: it is not installed; says which distribution had it.
        ConfigError: another setting names code to import, such as the class of a module; or the settings are too large,
            or of another config class.
    """
    data = checkpoint.metadata["config"]
    names = (ENV_OBSERVATION_SPACE, ENV_OBSERVATION_SPACES)
    spaces = {name: checkpoint.metadata.get(name) for name in names}
    check_size({**data, **spaces}, stored_bytes=stored_bytes(checkpoint.state))
    with with_distribution_hint(checkpoint.path, checkpoint.metadata):
        config_class = get_algorithm(data["algorithm"]) if data.get("algorithm") else Config
        check_numbers(data, config_class.fields(), to_act=to_act)
        data = _known(config_class, data) if to_act else data
        _refuse_unknown(config_class, data)
        config = config_class.from_dict(data)
        config = config if backend is None else config.framework(backend)
        check_installed("backend", config.backend)
    refuse_code(config_class, {name: value for name, value in data.items() if name not in given})
    if "rl_module_spec" not in given:
        refuse_own_modules(config)
    config = keep_byte_scales(keep_dense_encoders(config, checkpoint.state), checkpoint.metadata)
    # A checkpoint never loads a listener, and its reader says who starts processes.
    return config.plugins().learners(launcher=RAY)


def _known(config_class: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a config class has, also in the overrides of modules."""
    fields = config_class.fields()
    known = {name: value for name, value in data.items() if name in fields or name == ALGORITHM_KEY}
    if isinstance(overrides := known.get(OVERRIDES), dict):
        known[OVERRIDES] = {
            module_id: {name: each for name, each in settings.items() if name in fields}
            if isinstance(settings, dict)
            else settings
            for module_id, settings in overrides.items()
        }
    return known


def _refuse_unknown(config_class: Any, data: Mapping[str, Any]) -> None:
    fields = config_class.fields()
    sections = {info.section for info in fields.values()}
    if unknown := [name for name in data if name not in fields and name not in (ALGORITHM_KEY, *sections)]:
        raise ConfigError(
            f"unknown setting {', '.join(map(repr, unknown))[:400]}: {config_class.__name__} does not have it. It is "
            "of a config class of your own, which a checkpoint does not import, or of another version of plugrad: "
            "build from your config and restore_from_path",
            field=unknown[0],
        )


@contextmanager
def config_to_build(
    path: StrPath, *, kind: str, backend: str | None, given: Collection[str]
) -> Iterator[Any]:
    """A block that builds a learner or an algorithm like the one that was saved in a checkpoint.

    Args:
        path: a checkpoint directory or one of its saves.
        kind: "learner" or "algorithm".
        backend: as in `config_of`.
        given: as in `config_of`.

    Yields:
        The config. Modules that do not fit the checkpoint's weights are refused before they are built.

    Raises:
        CheckpointError: it cannot be read, or holds something that does not fit.
        RestoreMismatchError: it has only some components of a learner's state.
    """
    checkpoint = load_state(path, kind=kind)
    state = checkpoint.state if kind == "learner" else checkpoint.state.get("learner", {})
    if kind == "learner":
        check_whole(state, checkpoint.path)
    with as_checkpoint_error(checkpoint):
        config = config_of(checkpoint, backend=backend, given=given)
        with expect_weights(state):
            yield config


_NAME_AND_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]* [A-Za-z0-9._+!-]+")
"""A checkpoint is an untrusted file: text that cannot be a distribution's name and version is not shown."""


@contextmanager
def with_distribution_hint(path: Any, metadata: Mapping[str, Any]) -> Iterator[None]:
    """Add a hint to errors about plugins that are not installed: which distribution the checkpoint was written with.

    Args:
        path: of the checkpoint.
        metadata: of the checkpoint.

    Raises:
        AlgorithmNotFoundError, BackendNotFoundError: the original error, with the hint.
    """
    try:
        yield
    except (AlgorithmNotFoundError, BackendNotFoundError) as error:
        then = {(each["kind"], each["name"]): each for each in metadata.get("plugins", ())}
        owner = then.get((error.facts.get("kind"), error.facts.get("name")))
        if not owner or not owner["distribution"] or not _NAME_AND_VERSION.fullmatch(owner_in_words(owner)):
            raise
        hint = f"It was written with {owner_in_words(owner)}: pip install {owner['distribution']}"
        raise type(error)(f"{path}: {error} {hint}", **error.facts) from error


# --- spaces ---


def in_spaces_of(config: Any, checkpoint: Checkpoint) -> Any:
    """A config without spaces, with those that a checkpoint was trained in: an environment is compared with them.

    Args:
        config: the config of a run.
        checkpoint: from `load_state`.

    Returns:
        The config; modules of which it has spaces, or the checkpoint has none, are as they are.
    """
    # The preprocessing of Atari games also chooses convolutions, where it finds the spaces itself.
    if config.observation_space is not None or config.atari is True:
        return config
    saved = settings_of_spaces(checkpoint)
    if None not in (saved.observation_space, saved.action_space):
        return config.changed(observation_space=saved.observation_space, action_space=saved.action_space)
    without = [each for each in specs_of(config) if None in spaces_of(config, each)]
    spaces = {each: spaces_of(saved, each) for each in without}
    spaces = {each: pair for each, pair in spaces.items() if None not in pair}
    return with_spaces(config, spaces=spaces) if spaces else config


def with_bounds_of_env(config: Any) -> Any:
    """A config with the spaces of its environment, their parts in the order that the config's have.

    Args:
        config: of a checkpoint or run, with its spaces.

    Returns:
        The config; as it is, where it has no spaces.
    """
    bare = config.changed(observation_space=None, action_space=None)
    if is_multi_agent(config):
        asked = {each: spaces_of(config, each) for each in specs_of(config)}
        found = get_module_spaces(bare)
        ordered = {}
        for each, (observations, actions) in found.items():
            former = asked.get(each, (None, None))
            ordered[each] = (in_order_of(former[0], observations), in_order_of(former[1], actions))
        kept = {each: pair for each, pair in asked.items() if None not in pair}
        return with_spaces(bare, spaces={**kept, **ordered})
    if config.observation_space is None:
        return config
    own = with_spaces(bare)
    return own.changed(**{name: in_order_of(getattr(config, name), getattr(own, name)) for name in NAMES})
