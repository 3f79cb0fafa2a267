"""`plugrad algorithms`: the algorithms, the spaces that they take, and the environments that they have settings for."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from plugrad.cli.accepted_spaces import accepted_spaces
from plugrad.cli.exits import debug_option
from plugrad.cli.options import toml_literal
from plugrad.cli.tuned import STOP_TIMESTEPS, all_tuned
from plugrad.cli.typed_names import look_for_plugin
from plugrad.errors import PlugradError
from plugrad.hooks.plugin_records import list_plugins
from plugrad.hooks.registry import get_algorithm, use_plugin
from plugrad.importing.names import is_local_plugin
from plugrad.model_config import model_settings


@dataclass(frozen=True)
class AlgorithmReport:
    """What one algorithm can be trained on.

    Attributes:
        name: its short name.
        actions: kinds of action spaces, see `plugrad.cli.accepted_spaces`.
        observations: kinds of observation spaces.
        tuned: `{environment: tuned settings by section, with "stop_timesteps"}`.
        model_config: `{key of model_config: default}`.
        problem: why nothing is known of it; None if it can be used.
    """

    name: str
    actions: Sequence[str] = ()
    observations: Sequence[str] = ()
    tuned: dict[str, dict[str, Any]] = field(default_factory=dict)
    model_config: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None


@click.command(short_help="List the algorithms, their spaces and tuned settings.")
@click.argument("name", required=False, metavar="[NAME|FILE.py]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@debug_option
def algorithms(name: str | None, as_json: bool) -> None:
    """List the algorithms with their spaces and tuned settings; with NAME, show these and the keys of model_config.

    The kinds of spaces are those that an algorithm builds its default network for; observations that are no images
    are flattened to vectors. `plugrad train NAME ENV --tuned` trains with the settings.
    """
    if name is None:
        names = [record.name for record in list_plugins() if record.kind == "algorithm"]
        reports = [_report_or_problem(each) for each in names]
    else:
        reports = [report(use_plugin(look_for_plugin(name)).name if is_local_plugin(name) else name)]
    if as_json:
        click.echo(json.dumps([vars(each) for each in reports], indent=2))
        return
    Console().print(algorithms_table(reports))
    for each in reports:
        if each.problem:
            click.echo(f"{each.name}: {each.problem}")
    if name is not None:
        Console().print(model_config_table(get_algorithm(reports[0].name)))
        click.echo(tuned_text(reports[0]), nl=False)


def report(name: str) -> AlgorithmReport:
    """Load an algorithm and report on it.

    Args:
        name: its short name.

    Returns:
        What it takes and has.

    Raises:
        PlugradError: it cannot be loaded, it takes no actions, or its tuned settings are refused.
    """
    config_class = get_algorithm(name)
    spaces = accepted_spaces(config_class)
    tuned = {
        env: {**({STOP_TIMESTEPS: each.stop_timesteps} if each.stop_timesteps else {}), **each.settings}
        for env, each in all_tuned(name, config_class).items()
    }
    settings = model_settings(config_class.default_model_config)
    defaults = {key: each.default for key, each in settings.items()}
    return AlgorithmReport(name, spaces.actions, spaces.observations, tuned, defaults)


def algorithms_table(reports: Sequence[AlgorithmReport]) -> Table:
    """A table of algorithms, one per row, at most 80 characters wide."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, width=80)
    for column in ("name", "actions", "observations", "tuned for"):
        table.add_column(column, overflow="fold", no_wrap=column in ("name", "tuned for"))
    for each in reports:
        cells = (each.name, ", ".join(each.actions), ", ".join(each.observations), "\n".join(each.tuned))
        table.add_row(*map(escape, cells))
    return table


def model_config_table(config_class: type[Any]) -> Table:
    """A table of the keys of an algorithm's `model_config`, at most 80 characters wide."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, width=80)
    for column in ("model_config", "default", "meaning"):
        table.add_column(column, no_wrap=column == "model_config")
    for name, each in model_settings(config_class.default_model_config).items():
        meaning = f"{each.help} ({each.expects})" if each.help else each.expects
        table.add_row(*map(escape, (name, toml_literal(each.default), meaning)))
    return table


def tuned_text(found: AlgorithmReport) -> str:
    """The tuned settings in lines of TOML, below the commands that train with them."""
    parts = []
    for env, table in found.tuned.items():
        command = shlex.join(["plugrad", "train", found.name, env, "--tuned"])
        parts.append("\n".join([f"# {command}", *_lines(table), ""]))
    return "\n".join(parts)


def _lines(table: Mapping[str, Any]) -> Iterator[str]:
    for name, value in table.items():
        settings = (
            {f"{name}.{key}": each for key, each in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
        yield from (f"{key} = {toml_literal(each, quote=True)}" for key, each in settings.items())


def _report_or_problem(name: str) -> AlgorithmReport:
    try:
        return report(name)
    except PlugradError as error:
        return AlgorithmReport(name, problem=str(error))
    except (Exception, SystemExit) as error:  # a stranger's: it must not hide the others
        return AlgorithmReport(name, problem=f"{type(error).__name__}: {error}")
