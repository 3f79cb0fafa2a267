"""A learner on disk: its state with what is needed to build it again, on the same backend or another.

Knows the checkpoint package and the plugin registry; no framework.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from typing import Any, Final

import numpy as np

from plugrad.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from plugrad.config import Config
from plugrad.config.size_limits import check_size
from plugrad.errors import CheckpointError, ConfigError, PlugradError
from plugrad.hooks.registry import check_installed, get_algorithm
from plugrad.learner.older_images import keeping_dense_layers
from plugrad.learner.provenance import describe, saying_who_had_it
from plugrad.module_spec import MultiRLModuleSpec
from plugrad.types import DEFAULT_MODULE_ID

ENV_OBSERVATION_SPACE: Final = "env_observation_space"
"""Key of an algorithm's metadata: the space of its environment's observations, before they are flattened."""

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
    return part_of(load_checkpoint(path), kind=kind)


def part_of(checkpoint: Checkpoint, *, kind: str) -> Checkpoint:
    """A checkpoint that was read, as `load` gives it."""
    found: Any = checkpoint.metadata.get("kind")
    state: Any = checkpoint.state
    if (found, kind) == ("algorithm", "learner"):
        state = state.get("learner")
    elif found != kind:
        raise CheckpointError(f"{checkpoint.path} holds the state of {found!r}, not of {kind!r}")
    if not (_is_complete(checkpoint.metadata) and isinstance(state, dict)):
        raise CheckpointError(
            f"{checkpoint.path} says that it is of {found!r}, and lacks its config or state"
        )
    return replace(checkpoint, state=state)


def _is_complete(metadata: Mapping[str, Any]) -> bool:
    """Whether it has what `metadata_of` writes, as far as it is read without asking."""
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
def saying_what_does_not_fit(checkpoint: Checkpoint) -> Iterator[None]:
    """Within it, whatever comes of data that no plugrad wrote is an error that names the checkpoint."""
    try:
        yield
    except PlugradError:
        raise
    except Exception as error:
        path, reason = str(checkpoint.path), f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{path} holds something that does not fit: {reason}", path=path) from error


def config_of(checkpoint: Checkpoint, *, backend: str | None = None, given: Collection[str] = ()) -> Any:
    """The config that a checkpoint was saved with, for another backend if one is named.

    Its algorithm is looked up by short name among the installed ones; nothing else is loaded.

    Args:
        checkpoint: of `load`.
        backend: instead of the one that saved it.
        given: settings that the caller does without, or has something of its own for; they may name code.

    Raises:
        AlgorithmNotFoundError, BackendNotFoundError: it is not installed; says which distribution had it.
        ConfigError: another setting names code to import, such as the class of a module; or the settings are larger
            than a file's may be.
    """
    data = checkpoint.metadata["config"]
    spaces = {ENV_OBSERVATION_SPACE: checkpoint.metadata.get(ENV_OBSERVATION_SPACE)}
    check_size({**data, **spaces}, stored_bytes=stored_bytes(checkpoint.state))
    with saying_who_had_it(checkpoint.path, checkpoint.metadata):
        config_class = get_algorithm(data["algorithm"]) if data.get("algorithm") else Config
        config = config_class.from_dict(data)
        config = config if backend is None else config.framework(backend)
        check_installed("backend", config.backend)
    _refuse_code(config_class, {name: value for name, value in data.items() if name not in given})
    if "rl_module_spec" not in given:
        refuse_own_modules(config)
    config = keeping_dense_layers(config, checkpoint.state)
    return config.plugins()  # a checkpoint never loads a listener


def refuse_own_modules(config: Any) -> None:
    """Raise `ConfigError` if a config read from a checkpoint names the class of a module."""
    _refuse_own_modules(config.rl_module_spec)
    _refuse_own_modules(MultiRLModuleSpec(rl_module_specs=_policies(config)))


def stored_bytes(state: Any) -> int:
    """What the arrays of a state take."""
    if isinstance(state, Mapping):
        return sum(map(stored_bytes, state.values()))
    return state.nbytes if isinstance(state, np.ndarray) else 0


def _refuse_code(config_class: Any, data: Mapping[str, Any]) -> None:
    for name, info in config_class.fields().items():
        if info.importable and ":" in str(data.get(name)):
            raise _code_refused(name, data[name])


def _policies(config: Any) -> Mapping[str, Any]:
    return config.policies if isinstance(config.policies, Mapping) else {}


def _refuse_own_modules(spec: Any) -> None:
    for module_id, each in getattr(spec, "rl_module_specs", {DEFAULT_MODULE_ID: spec}).items():
        if isinstance(getattr(each, "module_class", None), str):
            raise _code_refused(f"module {module_id!r}", each.module_class)


_INSTEAD: Final = {
    "env": "give env= to Algorithm.from_checkpoint",
    "module": "give module= or module_spec= to Learner.from_checkpoint, module= to plugrad.load_policy",
}


def _code_refused(what: str, code: Any) -> ConfigError:
    instead = _INSTEAD.get(what.split()[0])
    return ConfigError(
        f"{what} of this checkpoint is {code}, and a checkpoint imports no code: "
        f"{f'{instead}, or ' if instead else ''}build from your config and restore_from_path"
    )
