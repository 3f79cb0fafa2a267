"""The spaces that a checkpoint was trained in, beside those of whoever opens it."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Literal

from plugrad.checkpoint import Checkpoint
from plugrad.config.module_specs import spaces_of
from plugrad.config.serialize import decode, decode_field
from plugrad.config.size_limits import check_size
from plugrad.errors import SpaceMismatchError
from plugrad.learner.modules.build import with_spaces
from plugrad.learner.state.checkpoint import ENV_OBSERVATION_SPACE, ENV_OBSERVATION_SPACES, stored_bytes
from plugrad.sampling.named_envs import env_name
from plugrad.spaces import check_fit, in_order_of, row_order
from plugrad.types import ModuleID


def in_spaces_of(config: Any, checkpoint: Checkpoint) -> Any:
    """A config without spaces, with those that a checkpoint was trained in: an environment is compared with them.

    Args:
        config: the config of a run.
        checkpoint: from `load`.

    Returns:
        The config; as it is, where it has spaces or the checkpoint has none in common for all modules.
    """
    fields, saved = config.fields(), checkpoint.metadata["config"]
    written = {name: saved.get(name) for name in ("observation_space", "action_space")}
    # The preprocessing of Atari games also chooses convolutions, where it finds the spaces itself.
    if config.observation_space is not None or config.atari is True or None in written.values():
        return config
    check_size(written, stored_bytes=stored_bytes(checkpoint.state))
    return config.changed(
        **{name: decode_field(fields[name], each, none_words=False) for name, each in written.items()}
    )


def with_bounds_of_env(config: Any) -> Any:
    """A config with the spaces of its environment, their parts in the order that the config's have.

    Args:
        config: of a checkpoint or run, with its spaces.

    Returns:
        The config; as it is, where it has no spaces in common for all modules.
    """
    if config.observation_space is None:
        return config
    own = with_spaces(config.changed(observation_space=None, action_space=None))
    return own.changed(**{name: in_order_of(getattr(config, name), getattr(own, name)) for name in _KINDS})


def check_spaces(
    config: Any,
    checkpoint: Checkpoint,
    env_observation_spaces: Mapping[str, Any],
    *,
    allow_other_bounds: bool = False,
) -> None:
    """Refuse a checkpoint of other spaces, before anything is changed.

    Args:
        config: the config of the learner or algorithm that restores.
        checkpoint: from `load`.
        env_observation_spaces: the environment's own spaces by module, before observations are flattened; empty where
            they are not known.
        allow_other_bounds: accept other bounds.

    Raises:
        SpaceMismatchError: spaces differ, or have their parts in another order.
    """
    fields, saved = config.fields(), checkpoint.metadata["config"]
    names = ("observation_space", "action_space")
    of_envs = checkpoint.metadata.get(ENV_OBSERVATION_SPACES) or {}
    if (whole := checkpoint.metadata.get(ENV_OBSERVATION_SPACE)) is not None:
        of_envs = dict.fromkeys(env_observation_spaces, whole)
    if not isinstance(of_envs, dict):
        return
    check_size(
        {**{name: saved.get(name) for name in names}, ENV_OBSERVATION_SPACES: of_envs},
        stored_bytes=stored_bytes(checkpoint.state),
    )
    pairs: list[tuple[str, Any, Any, str]] = [
        ("observation_space", space, decode(of_envs[module_id]), f", module {module_id!r}")
        for module_id, space in env_observation_spaces.items()
        if module_id in of_envs
    ]
    for name in names:
        own, written = getattr(config, name), saved.get(name)
        if own is not None and written is not None:
            pairs.append((name, own, decode_field(fields[name], written, none_words=False), ""))
    for name, own, written, whose in pairs:
        own_side = f"environment {env_name(config.env)}" if whose else "this config"
        where = f"{own_side} (asked) and checkpoint {checkpoint.path} (found){whose}"
        check_fit(
            name,  # type: ignore[arg-type]
            own,
            written,
            where=where,
            to_type="Restore into an environment of the same spaces",
            whatever_bounds=allow_other_bounds,
            rows_of=None if whose else "found",
        )
        if row_order(name, own, written) is not None:  # type: ignore[arg-type]
            raise SpaceMismatchError(
                f"{where}: the parts of the {name}s have another order, in which the weights were trained: build with "
                "Algorithm.from_checkpoint(path, env=...), which keeps that order, or from the checkpoint's spaces, by "
                f".environment(env, {name}=...)",
                field=name,
                expected=own,
                found=written,
            )


_OF_MODULES = ("observation_space", "action_space", "rl_module_spec", "policies")
_KINDS: tuple[Literal["observation_space", "action_space"], ...] = ("observation_space", "action_space")


def check_module_spaces(checkpoint: Checkpoint, modules: Mapping[ModuleID, Any]) -> None:
    """Refuse weights of modules of other spaces, or of the same parts in another order. Bounds may differ.

    Args:
        checkpoint: from `load`; modules that it has no spaces of are not compared.
        modules: those that get its weights.

    Raises:
        SpaceMismatchError: spaces differ, or have their parts in another order.
    """
    written = {name: checkpoint.metadata["config"].get(name) for name in _OF_MODULES}
    check_size(written, stored_bytes=stored_bytes(checkpoint.state))
    saved = SimpleNamespace(**{name: decode(value) for name, value in written.items()})
    for module_id, module in modules.items():
        own = module.observation_space, module.action_space
        for name, asked, found in zip(_KINDS, own, spaces_of(saved, module_id), strict=True):
            if asked is None or found is None:
                continue
            where = f"module {module_id!r} (asked) and that of {checkpoint.path} (found)"
            build = f"Build the module with the spaces of the checkpoint, by .environment(env, {name}=...)"
            check_fit(name, asked, found, where=where, to_type=build, whatever_bounds=True, rows_of="found")
            if row_order(name, asked, found) is not None:
                raise SpaceMismatchError(
                    f"{where}: the parts of the {name}s have another order, in which the weights were trained: "
                    f"{asked} asked, {found} found. {build}",
                    field=name,
                    expected=asked,
                    found=found,
                )
