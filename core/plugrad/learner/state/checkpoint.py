"""Loading a learner's state from disk, and what of the run that saved it is compared with the one that loads it.

Plugins, spaces, the scale of uint8 numbers, hyperparameters.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from plugrad.checkpoint import Checkpoint, load_checkpoint
from plugrad.config.from_files import check_size
from plugrad.config.rules import without_ineffective_overrides
from plugrad.config.serialize import decode, decode_field
from plugrad.deprecation.user_warnings import warn_at_users_line
from plugrad.errors import CheckpointError, ConfigError, PlugradError, RestoreMismatchError
from plugrad.hooks.manager import Plugin
from plugrad.hooks.registry import owner_of
from plugrad.learner.state.state import byte_scales
from plugrad.model_config import OLDER_UINT8_RULE, UINT8_RULE, UINT8_SCALE
from plugrad.module_spec import spaces_of, specs_of
from plugrad.rl_module import MultiRLModule
from plugrad.sampling.named_envs import env_name
from plugrad.spaces.fit import NAMES, Name, check_fit
from plugrad.types import ALL_MODULES, COMPONENT_RL_MODULE, ModuleID, StrPath

if TYPE_CHECKING:
    pass

ENV_OBSERVATION_SPACE: Final = "env_observation_space"
"""Key of an algorithm's metadata: the space of its environment's observations, before they are flattened."""

ENV_OBSERVATION_SPACES: Final = "env_observation_spaces"
"""The same for an environment with many agents: `{module_id: space}`."""

_OF_PLUGIN: Final = ("kind", "name", "distribution", "version")


def load_state(path: StrPath, *, kind: str) -> Checkpoint:
    """`part_of` a checkpoint directory or one of its saves.

    Raises:
        CheckpointError: it cannot be read, or holds something else.
    """
    return part_of(load_checkpoint(path), kind=kind)


def part_of(checkpoint: Checkpoint, *, kind: str) -> Checkpoint:
    """The part of a checkpoint that is of one kind; an algorithm's has a learner, too.

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
    plugins = checkpoint.metadata.get("plugins", [])  # with the config all that is read without a check
    if not (
        isinstance(state, dict)
        and isinstance(checkpoint.metadata.get("config"), dict)
        and isinstance(plugins, list)
        and all(
            isinstance(each, dict) and all(isinstance(each.get(key, 0), str | None) for key in _OF_PLUGIN)
            for each in plugins
        )
    ):
        raise CheckpointError(
            f"{checkpoint.path} says that it is of {found!r}, and lacks its config or state"
        )
    return replace(checkpoint, state=state)


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


# --- plugins and settings of the run that wrote it ---


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


def warn_of_other_plugins(path: Any, metadata: Mapping[str, Any], manifest: Sequence[Any]) -> None:
    """Warn, at the user's line, if a checkpoint was written with other plugins or versions than the active ones.

    A different backend gives no warning: results do not depend on it.

    Args:
        path: of the checkpoint.
        metadata: of the checkpoint.
        manifest: of the active ones.
    """
    then = {(each["kind"], each["name"]): each for each in metadata.get("plugins", ())}
    now = {(str(each["kind"]), str(each["name"])): each for each in manifest}
    gone = [key for key in then if key not in now and key[0] != "backend"]
    found = [f"{_name(then[key])} was active and is not now" for key in gone]
    for key, each in now.items():
        if key not in then and key[0] != "backend":
            found.append(f"{_name(each)} is active and was not then")
        elif key in then and owner_in_words(then[key]) != owner_in_words(each):
            found.append(f"{_name(each)} was of {owner_in_words(then[key])} then")
    if not found:
        return
    message = f"{path} was written with other plugins: {'; '.join(found)}"
    if gone:
        message += (
            ". A checkpoint loads no listeners: if one changes the loss or the gradients, build from your config with "
            ".plugins(...) and call restore_from_path, or give plugins= to Learner.from_checkpoint"
        )
    warn_at_users_line(message)


def owner_in_words(plugin: Mapping[str, Any]) -> str:
    """`<distribution> <version>` of a plugin in a manifest."""
    return f"{plugin['distribution']} {plugin['version']}" if plugin["distribution"] else "no distribution"


def _name(plugin: Mapping[str, Any]) -> str:
    return f"{plugin['kind']} {plugin['name']!r} ({owner_in_words(plugin)})"


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


# --- spaces ---


def settings_of_spaces(checkpoint: Checkpoint, **others: Any) -> Any:
    """The settings of a checkpoint that say which spaces its modules have; with `others`, no larger than it may be."""
    written = {name: checkpoint.metadata["config"].get(name) for name in _OF_SPACES}
    check_size({**written, **others}, stored_bytes=stored_bytes(checkpoint.state))
    return SimpleNamespace(**{name: decode(value) for name, value in written.items()})


_OF_SPACES = (*NAMES, "rl_module_spec", "policies")


def stored_bytes(state: Any) -> int:
    """The size of the arrays of a state, in bytes."""
    size, rest = 0, [state]
    while rest:
        each = rest.pop()
        if isinstance(each, Mapping):
            rest += each.values()
        elif isinstance(each, np.ndarray):
            size += each.nbytes
    return size


def check_spaces(
    config: Any,
    checkpoint: Checkpoint,
    env_observation_spaces: Mapping[str, Any],
    *,
    module_ids: Collection[ModuleID] | None = None,
    allow_other_bounds: bool = False,
) -> None:
    """Refuse a checkpoint of other spaces, before anything is changed.

    Args:
        config: the config of the algorithm that restores.
        checkpoint: from `load_state`.
        env_observation_spaces: the environment's own spaces by module, before observations are flattened; empty where
            they are not known.
        module_ids: modules that are restored; None: all of the config.
        allow_other_bounds: accept other bounds.

    Raises:
        SpaceMismatchError: spaces differ, or have their parts in another order.
    """
    of_envs = checkpoint.metadata.get(ENV_OBSERVATION_SPACES) or {}
    if (whole := checkpoint.metadata.get(ENV_OBSERVATION_SPACE)) is not None:
        of_envs = dict.fromkeys(env_observation_spaces, whole)
    if not isinstance(of_envs, dict):
        return
    saved = settings_of_spaces(checkpoint, **{ENV_OBSERVATION_SPACES: of_envs})
    whose = f"environment {env_name(config.env)} (asked) and checkpoint {checkpoint.path} (found)"
    for module_id, space in env_observation_spaces.items():
        if module_id in of_envs:
            found, where = decode(of_envs[module_id]), f"{whose}, module {module_id!r}"
            _check_fit("observation_space", space, found, where, allow_other_bounds, rows_of=None)
    _check_config(
        config, checkpoint, saved, specs_of(config) if module_ids is None else module_ids, allow_other_bounds
    )


def _check_config(
    config: Any, checkpoint: Checkpoint, saved: Any, module_ids: Iterable[ModuleID], allow_other_bounds: bool
) -> None:
    whose = f"this config (asked) and checkpoint {checkpoint.path} (found)"
    for name in NAMES:
        _check_fit(name, getattr(config, name), getattr(saved, name), whose, allow_other_bounds)
    for module_id in module_ids:
        own, found = (spaces_of(each, module_id) for each in (config, saved))
        for name, asked, written in zip(NAMES, own, found, strict=True):
            if asked is not getattr(config, name):
                _check_fit(name, asked, written, f"{whose}, module {module_id!r}", allow_other_bounds)


def check_module_spaces(checkpoint: Checkpoint, modules: Mapping[ModuleID, Any], config: Any = None) -> None:
    """Refuse weights of modules of other spaces, or of the same parts in another order. Bounds may differ.

    Args:
        checkpoint: from `load_state`; modules that it has no spaces of are not compared.
        modules: those that get its weights.
        config: of a learner that restores the whole checkpoint: its spaces are compared too, as in `check_spaces`.

    Raises:
        SpaceMismatchError: spaces differ, or have their parts in another order.
    """
    saved = settings_of_spaces(checkpoint)
    for module_id, module in modules.items():
        own = module.observation_space, module.action_space
        for name, asked, found in zip(NAMES, own, spaces_of(saved, module_id), strict=True):
            build = f"uild the module with the spaces of the checkpoint, by .environment(env, {name}=...)"
            _check_fit(
                name,
                asked,
                found,
                f"module {module_id!r} (asked) and that of {checkpoint.path} (found)",
                True,
                to_type=f"B{build}",
                of_other_order=f"b{build}",
            )
    if config is not None:
        _check_config(config, checkpoint, saved, specs_of(config), config.allow_other_bounds)


def _check_fit(
    name: Name,
    asked: Any,
    found: Any,
    where: str,
    whatever_bounds: bool,
    *,
    rows_of: Literal["found"] | None = "found",
    to_type: str = "Restore into an environment of the same spaces",
    of_other_order: str = "build with Algorithm.from_checkpoint(path, env=...), which keeps it, or from the "
    "checkpoint's spaces, by .environment(env, {name}=...)",
) -> None:
    if asked is not None and found is not None:
        order = f"The weights were trained in that of the checkpoint: {of_other_order.format(name=name)}"
        check_fit(
            name,
            asked,
            found,
            where=where,
            to_type=to_type,
            whatever_bounds=whatever_bounds,
            rows_of=rows_of,
            of_other_order=order,
        )


# --- byte scales ---
#
# How modules of a checkpoint scale the uint8 parts of a Dict or Tuple: by the rule of the version that trained them.
# Checkpoints of versions before the setting `uint8_scale` say nothing: their modules have the older rule.


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
    saved = metadata.get(UINT8_SCALE)
    known = saved if isinstance(saved, Mapping) else {}
    for module_id, rule in byte_scales(modules).items():
        found = known.get(module_id, OLDER_UINT8_RULE)
        if module_id in restored and found != rule:
            raise RestoreMismatchError(
                f"{path}: module {module_id!r} was trained with uint8 observations scaled by the rule "
                f"{str(found)[:20]!r}, and this one has the rule {rule!r}: build it with "
                f'model_config={{"{UINT8_SCALE}": "{OLDER_UINT8_RULE if found == OLDER_UINT8_RULE else UINT8_RULE}"}}',
                mismatched={UINT8_SCALE: (found, rule)},
            )


# --- hyperparameters ---


Hyperparameters = Literal["checkpoint", "config"]
OVERRIDES = "algorithm_config_overrides_per_module"
_log = logging.getLogger("plugrad")


def with_hyperparameters_of(config: Any, checkpoint: Checkpoint, whose: Hyperparameters) -> Any:
    """A config with the training settings of a checkpoint.

    Args:
        config: the config of the learner or algorithm that restores.
        checkpoint: from `load_state`.
        whose: which of the two the caller goes on with, "checkpoint" or "config"; it is only looked at here.

    Returns:
        The config; `config` itself where the settings are equal.

    Raises:
        ConfigError: `whose` is neither, or a setting is refused.
    """
    if whose not in ("checkpoint", "config"):
        raise ConfigError(f"hyperparameters={whose!r}: there is 'checkpoint' and 'config'")
    saved, fields = checkpoint.metadata["config"], config.fields()
    names = (name for name in _names(config) if name in saved)
    values = {name: decode_field(fields[name], saved[name], none_words=False) for name in names}
    values = {name: value for name, value in values.items() if value != getattr(config, name)}
    return config.changed(**without_ineffective_overrides(values, fields)) if values else config


def log_hyperparameters(config: Any, theirs: Any, whose: Hyperparameters, path: Any) -> None:
    """Log which hyperparameters are used after a restore, and how the two sets differ, if they do.

    Args:
        config: the config of the learner that restores.
        theirs: from `with_hyperparameters_of`.
        whose: "checkpoint" or "config".
        path: of the checkpoint.
    """
    changes = [
        f"{name}: {getattr(theirs, name)} in the checkpoint, {getattr(config, name)} in the config"
        for name in (_names(config) if theirs is not config else ())
        if getattr(theirs, name) != getattr(config, name)
    ]
    if changes:
        _log.warning("%s: going on with the hyperparameters of the %s; %s", path, whose, "; ".join(changes))


def kept_coefficients(
    config: Any, theirs: Any, states: Any, own: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The coefficients after a restore that keeps the hyperparameters of the config.

    Args:
        config: the config of the learner that restores.
        theirs: from `with_hyperparameters_of`.
        states: `{module_id: {name: value}}` of the checkpoint, not checked yet.
        own: those of the learner's config.

    Returns:
        The checkpoint's, which training may have adapted, where both configs have the same setting; else `own`.
    """
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
    return [
        name
        for name, info in config.fields().items()
        if (info.section == "training" and not info.importable) or name == OVERRIDES
    ]
