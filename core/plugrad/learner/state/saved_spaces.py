"""The spaces that a checkpoint was trained in, beside those of whoever opens it."""

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

from plugrad.checkpoint import Checkpoint
from plugrad.config.module_specs import spaces_of, specs_of
from plugrad.config.serialize import decode
from plugrad.config.size_limits import check_size
from plugrad.learner.modules.build import with_spaces
from plugrad.learner.state.checkpoint import ENV_OBSERVATION_SPACE, ENV_OBSERVATION_SPACES, stored_bytes
from plugrad.sampling.environments import get_module_spaces, is_multi_agent
from plugrad.sampling.named_envs import env_name
from plugrad.spaces.fit import NAMES, Name, check_fit
from plugrad.spaces.structure import in_order_of
from plugrad.types import ModuleID


def _settings_of_spaces(checkpoint: Checkpoint, **others: Any) -> Any:
    """The settings of a checkpoint that say which spaces its modules have; with `others`, no larger than it may be."""
    written = {name: checkpoint.metadata["config"].get(name) for name in _SETTINGS}
    check_size({**written, **others}, stored_bytes=stored_bytes(checkpoint.state))
    return SimpleNamespace(**{name: decode(value) for name, value in written.items()})


_SETTINGS = (*NAMES, "rl_module_spec", "policies")


def in_spaces_of(config: Any, checkpoint: Checkpoint) -> Any:
    """A config without spaces, with those that a checkpoint was trained in: an environment is compared with them.

    Args:
        config: the config of a run.
        checkpoint: from `load`.

    Returns:
        The config; modules of which it has spaces, or the checkpoint has none, are as they are.
    """
    # The preprocessing of Atari games also chooses convolutions, where it finds the spaces itself.
    if config.observation_space is not None or config.atari is True:
        return config
    saved = _settings_of_spaces(checkpoint)
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
        config: the config of the learner or algorithm that restores.
        checkpoint: from `load`.
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
    saved = _settings_of_spaces(checkpoint, **{ENV_OBSERVATION_SPACES: of_envs})
    pairs: list[tuple[Name, Any, Any, str, bool]] = [
        ("observation_space", space, decode(of_envs[module_id]), f", module {module_id!r}", True)
        for module_id, space in env_observation_spaces.items()
        if module_id in of_envs
    ]
    pairs += [(name, getattr(config, name), getattr(saved, name), "", False) for name in NAMES]
    for module_id in specs_of(config) if module_ids is None else module_ids:
        own, found = (spaces_of(each, module_id) for each in (config, saved))
        pairs += [
            (name, asked, written, f", module {module_id!r}", False)
            for name, asked, written in zip(NAMES, own, found, strict=True)
            if asked is not getattr(config, name)
        ]
    for name, asked, written, whose, is_of_env in pairs:
        if asked is None or written is None:
            continue
        own_side = f"environment {env_name(config.env)}" if is_of_env else "this config"
        check_fit(
            name,
            asked,
            written,
            where=f"{own_side} (asked) and checkpoint {checkpoint.path} (found){whose}",
            to_type="Restore into an environment of the same spaces",
            whatever_bounds=allow_other_bounds,
            rows_of=None if is_of_env else "found",
            of_other_order="The weights were trained in that of the checkpoint: build with "
            "Algorithm.from_checkpoint(path, env=...), which keeps it, or from the checkpoint's spaces, by "
            f".environment(env, {name}=...)",
        )


def check_module_spaces(checkpoint: Checkpoint, modules: Mapping[ModuleID, Any]) -> None:
    """Refuse weights of modules of other spaces, or of the same parts in another order. Bounds may differ.

    Args:
        checkpoint: from `load`; modules that it has no spaces of are not compared.
        modules: those that get its weights.

    Raises:
        SpaceMismatchError: spaces differ, or have their parts in another order.
    """
    saved = _settings_of_spaces(checkpoint)
    for module_id, module in modules.items():
        own = module.observation_space, module.action_space
        for name, asked, found in zip(NAMES, own, spaces_of(saved, module_id), strict=True):
            if asked is None or found is None:
                continue
            build = f"uild the module with the spaces of the checkpoint, by .environment(env, {name}=...)"
            check_fit(
                name,
                asked,
                found,
                where=f"module {module_id!r} (asked) and that of {checkpoint.path} (found)",
                to_type=f"B{build}",
                whatever_bounds=True,
                rows_of="found",
                of_other_order=f"The weights were trained in that of the checkpoint: b{build}",
            )
