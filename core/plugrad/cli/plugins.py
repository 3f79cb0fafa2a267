"""`plugrad plugins`: the installed plugins, read from metadata; `--check` trains with one and shows its hooks."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from plugrad.cli.exits import FAILED, debug_option
from plugrad.cli.plugin_check import PluginReport, check_plugin
from plugrad.errors import PluginError, did_you_mean
from plugrad.hooks.plugin_records import PluginRecord, list_plugins, obstacle
from plugrad.importing.names import is_local_plugin


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.option("--check", metavar="NAME|FILE.py", help="Train with this plugin and show its hooks.")
@debug_option
@click.pass_context
def plugins(ctx: click.Context, as_json: bool, check: str | None) -> None:
    """List the installed plugins.

    These are backends, algorithms, listeners, commands and collectives. None of them is imported, except the one that
    --check names: a tiny learner is built with it in a process of its own, and updated once. The exit code is 1 if that
    fails. --debug shows the traceback.
    """
    if check is None:
        _list(list_plugins(), as_json)
        return
    reports = _reports(check)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(report) for report in reports], indent=2))
    else:
        _show(reports)
    ctx.exit(FAILED if any(report.reason for report in reports) else 0)


def _list(records: list[PluginRecord], as_json: bool) -> None:
    if as_json:
        found = [{**dataclasses.asdict(record), "problem": _problem(record)} for record in records]
        click.echo(json.dumps(found, indent=2))
        return
    Console().print(_plugins_table(records))
    for problem in dict.fromkeys(filter(None, map(_problem, records))):
        click.echo(problem)


def _plugins_table(records: list[PluginRecord]) -> Table:
    """A table of plugins, one per row, at most 80 characters wide."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("kind", "name", "distribution", "needs"):
        table.add_column(column, overflow="fold", no_wrap=column == "name")
    for record in records:
        owner = f"{record.distribution} {record.version}"
        table.add_row(record.kind, escape(record.name), escape(owner), _needs(record))
    return table


def _needs(record: PluginRecord) -> str:
    if record.requires is None:
        return "-"
    return record.requires if record.installed else f"{record.requires}: [red]missing[/red]"


def _problem(record: PluginRecord) -> str | None:
    error = obstacle(record)
    return None if error is None else str(error)


def _reports(name: str) -> list[PluginReport]:
    if is_local_plugin(name):
        return [check_plugin(name)]
    records = list_plugins()
    found = [record for record in records if record.name == name]
    if not found:
        known = sorted({record.name for record in records})
        raise PluginError(f"no plugin {name!r}; installed: {', '.join(known)}.{did_you_mean(name, known)}")
    return [check_plugin(record) for record in found]


def _show(reports: Sequence[PluginReport]) -> None:
    for report in reports:
        owner = "" if report.distribution is None else f" of {report.distribution} {report.version}"
        click.echo(f"{report.kind} {report.name!r}{owner} ({report.value})")
        click.echo(f"  unusable: {report.reason}" if report.reason else f"  loads, and {_fit(report)}")
        if report.hooks:
            Console().print(_hooks_table(report.hooks))


def _fit(report: PluginReport) -> str:
    if report.is_command:
        return f"is a command: plugrad {report.name}"
    if report.kind == "collective":
        suite = "plugrad.testing.collective_suite shows whether it sums"
        return f'is complete, for .learners(collective="{report.name}"); {suite}'
    return f"trains: one update {report.trained}"


def _hooks_table(hooks: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("hook", "how", "where"):
        table.add_column(column, overflow="fold")
    for each in hooks:
        table.add_row(each["hook"], "wraps" if each["wrapper"] else "answers", escape(each["where"]))
    return table
