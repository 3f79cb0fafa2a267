"""`plugrad plugins`: what is installed, read from metadata; `--check` loads one and tries its hooks."""

import dataclasses
import json

import click
from rich import box
from rich.console import Console
from rich.table import Table

from plugrad.cli.exits import debug_option
from plugrad.errors import PluginError, did_you_mean
from plugrad.hooks.registry import PluginRecord, list_plugins, load_algorithm, load_backend, load_listeners


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.option("--check", metavar="NAME", help="Load this plugin and check its hooks.")
@debug_option
def plugins(as_json: bool, check: str | None) -> None:
    """Backends, algorithms and listeners that are installed. Nothing of them is imported."""
    records = list_plugins()
    if check is not None:
        _check(check, records)
    elif as_json:
        click.echo(json.dumps([dataclasses.asdict(record) for record in records], indent=2))
    else:
        Console().print(plugins_table(records))


def plugins_table(records: list[PluginRecord]) -> Table:
    """One row per plugin."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("kind", "name", "distribution", "needs", "entry point"):
        table.add_column(column, overflow="fold")
    for record in records:
        owner = f"{record.distribution} {record.version}"
        table.add_row(record.kind, record.name, owner, _needs(record), record.value)
    return table


def _needs(record: PluginRecord) -> str:
    if record.requires is None:
        return "-"
    return record.requires if record.installed else f"{record.requires}: [red]missing[/red]"


def _check(name: str, records: list[PluginRecord]) -> None:
    found = [record for record in records if record.name == name]
    if not found:
        known = sorted({record.name for record in records})
        raise PluginError(f"no plugin {name!r}; installed: {', '.join(known)}.{did_you_mean(name, known)}")
    for record in found:
        _load(record)
        owner = f"{record.distribution} {record.version}"
        click.echo(f"{record.kind} {name!r} of {owner}: loads, and its hooks fit")


def _load(record: PluginRecord) -> None:
    if record.kind == "backend":
        load_backend(record.name)
    elif record.kind == "algorithm":
        load_algorithm(record.name)
    else:
        load_listeners((record.name,))
