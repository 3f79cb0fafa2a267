"""A learner on disk: its state with what is needed to build it again, on the same backend or another.

Knows the checkpoint package and the plugin registry; no framework.
"""

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import Any

from plugrad.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from plugrad.config import Config
from plugrad.errors import CheckpointError
from plugrad.hooks.registry import get_algorithm
from plugrad.learner.provenance import describe

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


def config_of(checkpoint: Checkpoint, *, backend: str | None = None) -> Any:
    """The config that a checkpoint was saved with, for another backend if one is named.

    Its algorithm is looked up by short name among the installed ones; nothing else is loaded.
    """
    data = checkpoint.metadata["config"]
    config_class = get_algorithm(data["algorithm"]) if data.get("algorithm") else Config
    config = config_class.from_dict(data)
    config = config.plugins()  # a checkpoint never loads a listener
    return config if backend is None else config.framework(backend)
