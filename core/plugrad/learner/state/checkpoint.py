"""A learner's state on disk: saving and loading, plugins that wrote it, hyperparameters after a restore."""

import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from typing import Any, Final, Literal

import numpy as np

from plugrad.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from plugrad.config import Config
from plugrad.config.rules import without_ineffective_overrides
from plugrad.config.serialize import ALGORITHM_KEY, decode_field
from plugrad.config.size_limits import check_numbers, check_size
from plugrad.deprecation.user_warnings import warn_at_users_line
from plugrad.errors import (
    AlgorithmNotFoundError,
    BackendNotFoundError,
    CheckpointError,
    ConfigError,
    PlugradError,
)
from plugrad.hooks.manager import Plugin
from plugrad.hooks.registry import check_installed, get_algorithm, owner_of
from plugrad.learner.internals import LearnerInternals
from plugrad.learner.state.state import check_whole, oldest_reader
from plugrad.learner.state.untrusted import (
    KEY,
    byte_scales,
    expect_weights,
    keep_byte_scales,
    keep_dense_encoders,
    refuse_code,
    refuse_own_modules,
)
from plugrad.types import ALL_MODULES, COMPONENT_LEARNER, COMPONENT_RL_MODULE

ENV_OBSERVATION_SPACE: Final = "env_observation_space"
"""Key of an algorithm's metadata: the space of its environment's observations, before they are flattened."""

ENV_OBSERVATION_SPACES: Final = "env_observation_spaces"
"""The same for an environment with many agents: `{module_id: space}`."""

StrPath = str | PathLike[str]


def metadata_of(learner: LearnerInternals, config: Any, *, kind: str) -> dict[str, Any]:
    """The metadata of a checkpoint: what is needed to rebuild its learner, and which plugins wrote it.

    Args:
        learner: the learner, for its modules and plugins.
        config: the config of the learner or algorithm that is saved.
        kind: "learner" or "algorithm".

    Returns:
        JSON data.
    """
    written = config.to_dict()
    return {
        "kind": kind,
        "backend": config.backend,
        "algorithm": written["algorithm"],
        "module_ids": list(learner.module),
        "plugins": plugin_manifest(learner.plugins),
        "config": written,
        KEY: byte_scales(learner.module),
    }


def warn_of_unwritable(config: Any) -> None:
    """Warn, at the user's line, of a setting with which nothing can be saved, such as a lambda."""
    try:
        config.to_dict()
    except ConfigError as error:
        warn_at_users_line(f"{error}. Until then save_to_path raises this error")


def save(path: StrPath, state: Mapping[str, Any], metadata: Mapping[str, Any], *, keep: int) -> str:
    """Write a state with its metadata.

    Args:
        path: a checkpoint directory.
        state: nested dicts of arrays and plain values.
        metadata: JSON data.
        keep: how many saves to keep.

    Returns:
        `path`.
    """
    key = COMPONENT_LEARNER if metadata.get("kind") == "algorithm" else ""
    learner = dict(state[key] if key else state)
    for name in [
        name for name, each in learner.items() if oldest_reader({name: each or True}) > 1 and not each
    ]:
        del learner[name]  # so that an older version of plugrad reads the file
    state, version = {**state, key: learner} if key else learner, oldest_reader(learner)
    return str(save_checkpoint(path, state, metadata=metadata, keep=keep, format_version=version))


def load(path: StrPath, *, kind: str) -> Checkpoint:
    """Read a checkpoint that `save` wrote. `kind="learner"` also reads the learner in an algorithm's checkpoint.

    Args:
        path: a checkpoint directory or one of its saves.
        kind: "learner" or "algorithm".

    Returns:
        The checkpoint, with the state of this kind.

    Raises:
        CheckpointError: it cannot be read, or holds something else.
    """
    return part_of(load_checkpoint(path), kind=kind)


def part_of(checkpoint: Checkpoint, *, kind: str) -> Checkpoint:
    """The part of a checkpoint that is of one kind, as `load` gives it.

    Args:
        checkpoint: as it was read.
        kind: "learner" or "algorithm".

    Returns:
        The checkpoint with this part as its state.

    Raises:
        CheckpointError: it holds something else, or lacks its config or state.
    """
    found: Any = checkpoint.metadata.get("kind")
    state: Any = checkpoint.state
    if (found, kind) == ("algorithm", "learner"):
        state = state.get("learner")
    elif found != kind:
        hint = ""
        if found == COMPONENT_RL_MODULE:  # of `RLModule.save_to_path`
            hint = ": weights alone, which learner.module.restore_from_path(path) loads"
        raise CheckpointError(f"{checkpoint.path} holds the state of {found!r}, not of {kind!r}{hint}")
    if not (_is_complete(checkpoint.metadata) and isinstance(state, dict)):
        raise CheckpointError(
            f"{checkpoint.path} says that it is of {found!r}, and lacks its config or state"
        )
    return replace(checkpoint, state=state)


def _is_complete(metadata: Mapping[str, Any]) -> bool:
    """Whether metadata has the entries that are read without a check."""
    plugins = metadata.get("plugins", [])
    return (
        isinstance(metadata.get("config"), dict)
        and isinstance(plugins, list)
        and all(map(_is_plugin, plugins))
    )


def _is_plugin(each: Any) -> bool:
    keys = {"kind", "name", "distribution", "version"}
    return isinstance(each, dict) and all(isinstance(each.get(key, 0), str | None) for key in keys)


@contextmanager
def as_checkpoint_error(checkpoint: Checkpoint) -> Iterator[None]:
    """Turn errors other than plugrad's into a `CheckpointError` that names the checkpoint."""
    try:
        yield
    except PlugradError:
        raise
    except Exception as error:
        path, reason = str(checkpoint.path), f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{path} holds something that does not fit: {reason}", path=path) from error


def config_of(
    checkpoint: Checkpoint, *, backend: str | None = None, given: Collection[str] = (), to_act: bool = False
) -> Any:
    """The config that a checkpoint was saved with, optionally for another backend.

    Its algorithm is looked up by short name among the installed ones; nothing else is loaded.

    Args:
        checkpoint: from `load`.
        backend: a backend instead of the one that saved it.
        given: settings that the caller does not need, or replaces; they may name code.
        to_act: nothing samples, and settings that the algorithm does not have, such as those of a user's own config
            class, are left out.

    Returns:
        The config, without listeners.

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
    return config.plugins()  # a checkpoint never loads a listener


def _known(config_class: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a config class has, also in the overrides of modules."""
    fields = config_class.fields()
    known = {name: value for name, value in data.items() if name in fields or name == ALGORITHM_KEY}
    if isinstance(overrides := known.get(_OVERRIDES), dict):
        known[_OVERRIDES] = {
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
    checkpoint = load(path, kind=kind)
    state = checkpoint.state if kind == "learner" else checkpoint.state.get("learner", {})
    if kind == "learner":
        check_whole(state, checkpoint.path)
    with as_checkpoint_error(checkpoint):
        config = config_of(checkpoint, backend=backend, given=given)
        with expect_weights(state):
            yield config


def stored_bytes(state: Any) -> int:
    """The size of the arrays of a state, in bytes."""
    if isinstance(state, Mapping):
        return sum(map(stored_bytes, state.values()))
    return state.nbytes if isinstance(state, np.ndarray) else 0


_NAME_AND_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]* [A-Za-z0-9._+!-]+")
"""A checkpoint is an untrusted file: text that cannot be a distribution's name and version is not shown."""


def plugin_manifest(plugins: Sequence[Plugin]) -> list[dict[str, str | None]]:
    """Kind, name, distribution and version of each plugin outside the core, as plain data.

    Distribution and version are None for a listener that is a user's object or file.
    """
    return [
        {"kind": each.tier, "name": each.name, "distribution": owner, "version": version}
        for each in plugins
        if each.tier != "core"
        for owner, version in [owner_of(each) or (None, None)]
    ]


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
        if not owner or not owner["distribution"] or not _NAME_AND_VERSION.fullmatch(_owner(owner)):
            raise
        hint = f"It was written with {_owner(owner)}: pip install {owner['distribution']}"
        raise type(error)(f"{path}: {error} {hint}", **error.facts) from error


def warn_of_other_plugins(path: Any, metadata: Mapping[str, Any], plugins: Sequence[Plugin]) -> None:
    """Warn, at the user's line, if a checkpoint was written with other plugins or versions than the active ones.

    A different backend gives no warning: results do not depend on it.

    Args:
        path: of the checkpoint.
        metadata: of the checkpoint.
        plugins: the active ones.
    """
    then = {(each["kind"], each["name"]): each for each in metadata.get("plugins", ())}
    now = {(str(each["kind"]), str(each["name"])): each for each in plugin_manifest(plugins)}
    found = [f"{_name(then[key])} was active and is not now" for key in then if _is_gone(key, now)]
    found += [f"{_name(now[key])} is active and was not then" for key in now if _is_gone(key, then)]
    found += [
        f"{_name(now[key])} was of {_owner(then[key])} then"
        for key in now
        if key in then and _owner(then[key]) != _owner(now[key])
    ]
    if not found:
        return
    message = f"{path} was written with other plugins: {'; '.join(found)}"
    if any(_is_gone(key, now) for key in then):
        message += (
            ". A checkpoint loads no listeners: if one changes the loss or the gradients, build from your config with "
            ".plugins(...) and call restore_from_path, or give plugins= to Learner.from_checkpoint"
        )
    warn_at_users_line(message)


def warn_of_other_normalization(path: Any, metadata: Mapping[str, Any], config: Any) -> None:
    """Warn, at the user's line, where only one side has `normalize_observations`: the other's weights act otherwise.

    Args:
        path: of the checkpoint.
        metadata: of the checkpoint.
        config: of the learner that loads weights.
    """
    then, now = bool(metadata["config"].get("normalize_observations", False)), config.normalize_observations
    if then != now:
        warn_at_users_line(
            f"{path} is of a run with normalize_observations={then}, and this learner has {now}: a learner has no "
            "statistics, so these weights may see other numbers than in training. Build with "
            f".env_runners(normalize_observations={then}); for the statistics too, call Algorithm.restore_from_path("
            'path, component="rl_module")'
        )


def _is_gone(key: tuple[str, str], others: Mapping[tuple[str, str], Any]) -> bool:
    return key[0] != "backend" and key not in others


def _owner(plugin: Mapping[str, Any]) -> str:
    return f"{plugin['distribution']} {plugin['version']}" if plugin["distribution"] else "no distribution"


def _name(plugin: Mapping[str, Any]) -> str:
    return f"{plugin['kind']} {plugin['name']!r} ({_owner(plugin)})"


Hyperparameters = Literal["checkpoint", "config"]
_SECTION, _OVERRIDES = "training", "algorithm_config_overrides_per_module"
_log = logging.getLogger("plugrad")


def resolve_hyperparameters(config: Any, whose: Hyperparameters, saved: Mapping[str, Any]) -> Any:
    """The config that is used after a restore.

    Args:
        config: the config of the learner or algorithm that restores.
        whose: "checkpoint": take the saved training settings; "config": keep `config` unchanged.
        saved: the config of the checkpoint as data.

    Returns:
        The config.

    Raises:
        ConfigError: `whose` is neither.
    """
    if whose not in ("checkpoint", "config"):
        raise ConfigError(f"hyperparameters={whose!r}: there is 'checkpoint' and 'config'")
    return config if whose == "config" else _with_hyperparameters_of(config, saved)


def log_hyperparameters(config: Any, whose: Hyperparameters, saved: Mapping[str, Any], path: Any) -> None:
    """Log which hyperparameters are used after a restore, and how the two sets differ, if they do.

    Args:
        config: the config of the learner or algorithm that restores.
        whose: "checkpoint" or "config".
        saved: the config of the checkpoint as data.
        path: of the checkpoint.
    """
    theirs = _with_hyperparameters_of(config, saved)
    changes = [
        f"{name}: {getattr(theirs, name)} in the checkpoint, {getattr(config, name)} in the config"
        for name in _names(config)
        if getattr(theirs, name) != getattr(config, name)
    ]
    if changes:
        _log.warning("%s: going on with the hyperparameters of the %s; %s", path, whose, "; ".join(changes))


def kept_coefficients(
    config: Any, saved: Mapping[str, Any], states: Any, own: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The coefficients after a restore that keeps the hyperparameters of the config.

    Args:
        config: the config of the learner that restores.
        saved: the config of the checkpoint as data.
        states: `{module_id: {name: value}}` of the checkpoint, not checked yet.
        own: those of the learner's config.

    Returns:
        The checkpoint's, which training may have adapted, where both configs have the same setting; else `own`.
    """
    theirs = _with_hyperparameters_of(config, saved)
    kept: dict[str, dict[str, Any]] = {}
    for module_id, values in own.items():
        pair = [
            each if module_id == ALL_MODULES else each.get_config_for_module(module_id)
            for each in (config, theirs)
        ]
        found = states.get(module_id) if isinstance(states, Mapping) else None
        found = found if isinstance(found, Mapping) else {}
        kept[module_id] = {
            name: found[name] if name in found and getattr(pair[0], name) == getattr(pair[1], name) else value
            for name, value in values.items()
        }
    return kept


def _names(config: Any) -> list[str]:
    # Settings that name code are never taken from a checkpoint.
    fields = config.fields().items()
    return [
        name
        for name, info in fields
        if (info.section == _SECTION and not info.importable) or name == _OVERRIDES
    ]


def _with_hyperparameters_of(config: Any, saved: Mapping[str, Any]) -> Any:
    fields = config.fields()
    values = {
        name: decode_field(fields[name], saved[name], none_words=False)
        for name in _names(config)
        if name in saved
    }
    return config.changed(**without_ineffective_overrides(values, fields))
