"""A learner on disk: its state with what is needed to build it again, on the same backend or another.

Knows the checkpoint package and the plugin registry; no framework.
"""

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import Any

from plugrad.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from plugrad.config import Config
from plugrad.errors import CheckpointError, ConfigError
from plugrad.hooks.registry import check_installed, get_algorithm
from plugrad.learner.provenance import describe, saying_who_had_it
from plugrad.types import DEFAULT_MODULE_ID

StrPath = str | PathLike[str]


def metadata_of(learner: Any, config: Any, *, kind: str) -> dict[str, Any]:
    """What a checkpoint says of itself: enough to build again whose state it is, and which plugins made it."""
    written = config.to_dict()
    return {
        "kind": kind,
        "backend": config.backend,
        "algorithm": written["algorithm"],
        "module_ids": list(learner.module),
        "plugins": describe(learner.plugins),
        "config": written,
    }


def save(path: StrPath, state: Mapping[str, Any], metadata: Mapping[str, Any], *, keep: int) -> str:
    """Write a state with its metadata; returns `path`."""
    return str(save_checkpoint(path, state, metadata=metadata, keep=keep))


def load(path: StrPath, *, kind: str) -> Checkpoint:
    """Read a checkpoint that `save` wrote. Of an algorithm's, a learner is a part that can be asked for.

    Raises:
        CheckpointError: it cannot be read, or holds something else.
    """
    checkpoint = load_checkpoint(path)
    found = checkpoint.metadata.get("kind")
    if (found, kind) == ("algorithm", "learner"):
        return replace(checkpoint, state=checkpoint.state["learner"])
    if found != kind:
        raise CheckpointError(f"{checkpoint.path} holds the state of {found!r}, not of {kind!r}")
    return checkpoint


def config_of(checkpoint: Checkpoint, *, backend: str | None = None, modules_are_given: bool = False) -> Any:
    """The config that a checkpoint was saved with, for another backend if one is named.

    Its algorithm is looked up by short name among the installed ones; nothing else is loaded.

    Raises:
        AlgorithmNotFoundError, BackendNotFoundError: it is not installed; says which distribution had it.
        ConfigError: a module is of a class of somebody's own, and the caller gives no modules.
    """
    data = checkpoint.metadata["config"]
    with saying_who_had_it(checkpoint.path, checkpoint.metadata):
        config_class = get_algorithm(data["algorithm"]) if data.get("algorithm") else Config
        config = config_class.from_dict(data)
        config = config if backend is None else config.framework(backend)
        check_installed("backend", config.backend)
    if not modules_are_given:
        _refuse_own_classes(config.rl_module_spec)
    return config.plugins()  # a checkpoint never loads a listener


def _refuse_own_classes(spec: Any) -> None:
    for module_id, each in getattr(spec, "rl_module_specs", {DEFAULT_MODULE_ID: spec}).items():
        if isinstance(getattr(each, "module_class", None), str):
            raise ConfigError(
                f"module {module_id!r} of this checkpoint is a {each.module_class}, and a checkpoint imports no code: "
                "give module= or module_spec= to Learner.from_checkpoint, or build from your config and "
                "restore_from_path"
            )
