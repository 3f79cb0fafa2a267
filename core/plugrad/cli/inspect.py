"""`plugrad inspect`: the content of a checkpoint or policy file. It checks every byte and loads no plugin."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from plugrad.checkpoint import Checkpoint, list_saves, load_checkpoint
from plugrad.cli.exits import debug_option
from plugrad.cli.run_directory import RunDirectory
from plugrad.cli.terminal import plain_table, printable
from plugrad.config.serialize import SPACE_KEY
from plugrad.learner.acting.policy_content import KIND, as_checkpoint
from plugrad.learner.state.checkpoint import ENV_OBSERVATION_SPACE
from plugrad.policy.policy_file import read_policy_file
from plugrad.spaces.kinds import size_arguments
from plugrad.types import Array


@click.command(
    name="inspect", short_help="Show what is in a checkpoint or a policy file and check every byte."
)
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--arrays", is_flag=True, help="List every array with its dtype and shape.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object: everything except the arrays' values."
)
@debug_option
def inspect_checkpoint(path: Path, arrays: bool, as_json: bool) -> None:
    """Show what is in a checkpoint or a policy file and check every byte; a damaged file is named.

    PATH is a checkpoint, one of its saves, a run directory, whose best checkpoint is used, or a policy file.
    """
    checkpoint = _open(path)
    found = list(_arrays(checkpoint.state))
    if as_json:
        click.echo(json.dumps(_document(checkpoint, found), indent=2))
        return
    console = Console()
    for name, value in _about(checkpoint).items():
        console.print(f"{name + ':':12} {printable(value)}", highlight=False, soft_wrap=True)
    console.print(_array_table(found) if arrays else _summary_table(found))


def _open(path: Path) -> Checkpoint:
    if path.is_dir():
        return load_checkpoint(RunDirectory(path).checkpoint() if (path / "config.toml").is_file() else path)
    return as_checkpoint(read_policy_file(path))


def _about(checkpoint: Checkpoint) -> dict[str, Any]:
    """The facts that are printed first."""
    metadata = checkpoint.metadata
    is_policy = metadata.get("kind") == KIND
    plugins = [
        f"{each['kind']} {each['name']} ({each['distribution'] or 'no distribution'} {each['version'] or ''}".rstrip()
        + ")"
        for each in metadata.get("plugins", ())
    ]
    about = {
        **_place(checkpoint),
        "written by": f"plugrad {checkpoint.plugrad_version}",
        "kind": metadata.get("kind"),
        "algorithm": metadata.get("algorithm"),
        ("computes in" if is_policy else "backend"): metadata.get("backend"),
        "plugins": ", ".join(plugins) or None,
        "modules": ", ".join(metadata.get("module_ids", ())) or None,
        "your class": metadata.get("module_class"),
        **_spaces(metadata),
        "counters": ", ".join(f"{name} {number}" for name, number in _counters(checkpoint.state)) or None,
    }
    return {name: value for name, value in about.items() if value is not None}


def _place(checkpoint: Checkpoint) -> dict[str, str]:
    if checkpoint.metadata.get("kind") == KIND:
        return {"policy file": str(checkpoint.path)}
    saves = [save.name for save in list_saves(checkpoint.path.parent)]
    return {"checkpoint": f"{checkpoint.path} (saves: {', '.join(saves) or 'this one'})"}


def _spaces(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The spaces of a policy, as they are written."""
    if metadata.get("kind") != KIND:
        return {}
    spaces = {"takes": metadata[ENV_OBSERVATION_SPACE], "returns": metadata["config"].get("action_space")}
    return {name: f"{_space_words(space):.200}" for name, space in spaces.items()}


def _space_words(space: Any) -> str:
    """A space in short, as a file describes it: no space is made. `--json` has all of it."""
    if not isinstance(space, Mapping) or SPACE_KEY not in space:
        return json.dumps(space)
    rest = {name: value for name, value in space.items() if name != SPACE_KEY}
    if size_arguments().get(space[SPACE_KEY]) == "shape":
        return f"{space[SPACE_KEY]} of shape {rest.get('shape')}, {rest.get('dtype')}"
    inside = rest.get("spaces")
    if isinstance(inside, Mapping):
        words = ", ".join(f"{name}: {_space_words(each)}" for name, each in inside.items())
    elif isinstance(inside, list):
        words = ", ".join(map(_space_words, inside))
    else:
        words = ", ".join(f"{name}={json.dumps(value)}" for name, value in rest.items())
    return f"{space[SPACE_KEY]}({words})"


def _counters(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The counters of a learner, an env runner or an algorithm."""
    for place in (state, state.get("env_runner"), state.get("learner")):
        if isinstance(place, Mapping):
            yield from (
                (name, place[name]) for name in ("training_iteration", "total_steps") if name in place
            )
            yield from dict(place.get("counters") or {}).items()


def _document(checkpoint: Checkpoint, arrays: list[tuple[str, Array]]) -> dict[str, Any]:
    return {
        "path": str(checkpoint.path),
        "plugrad_version": checkpoint.plugrad_version,
        "metadata": checkpoint.metadata,
        "counters": dict(_counters(checkpoint.state)),
        "arrays": {name: {"dtype": str(each.dtype), "shape": list(each.shape)} for name, each in arrays},
    }


def _arrays(tree: Any, path: str = "") -> Iterator[tuple[str, Array]]:
    """Every array with its path in the state."""
    if isinstance(tree, np.ndarray):
        yield path, tree
    items = tree.items() if isinstance(tree, Mapping) else enumerate(tree) if isinstance(tree, list) else ()
    for name, value in items:
        yield from _arrays(value, f"{path}/{name}" if path else str(name))


def _summary_table(arrays: list[tuple[str, Array]]) -> Table:
    """One row per module or optimizer, by the component paths of `restore_from_path(component=...)`."""
    parts: dict[str, list[Array]] = {}
    for name, array in arrays:
        depth = 3 if name.startswith("learner/") else 2
        parts.setdefault("/".join(name.split("/")[:depth]), []).append(array)
    table = plain_table("part", "arrays", "numbers", "bytes")
    for part, each in parts.items():
        size, space = sum(array.size for array in each), sum(array.nbytes for array in each)
        table.add_row(printable(part), str(len(each)), f"{size:,}", f"{space:,}")
    return table


def _array_table(arrays: list[tuple[str, Array]]) -> Table:
    table = plain_table("array", "dtype", "shape")
    for name, array in arrays:
        table.add_row(printable(name), str(array.dtype), escape(str(list(array.shape))))
    return table
