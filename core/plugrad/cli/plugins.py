"""`plugrad plugins`: the installed plugins, read from metadata; `--check` trains with one and shows its hooks."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from tempfile import TemporaryFile
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from plugrad.cli.exits import FAILED, debug_option
from plugrad.cli.terminal import text_table
from plugrad.errors import PluginError, did_you_mean
from plugrad.hooks.plugin_records import PluginRecord, list_plugins, obstacle
from plugrad.importing.names import is_local_plugin
from plugrad.workers.process import start_interpreter

_CHECK = "plugrad.testing.plugin_check:answer_check"
"""By its name: commands need nothing of the suites."""


@dataclass(frozen=True)
class PluginReport:
    """The result of training with a plugin.

    Attributes:
        name: the plugin's short name.
        kind: "backend", "algorithm", "plugin", "collective" or "launcher"; for a listener in a file "listener".
        value: its entry point, or the file.
        distribution: the distribution that has it; None for a file.
        version: of the distribution.
        reason: why it cannot be used; None if it can.
        hooks: for each hook `hook` (its name), `wrapper` (whether it wraps) and `where` (`module:line`).
        is_command: whether it is called as `plugrad NAME`.
        trained: what trained with it, such as "on 'numpy'"; None if nothing did.
    """

    name: str
    kind: str
    value: str
    distribution: str | None = None
    version: str | None = None
    reason: str | None = None
    hooks: list[dict[str, Any]] = field(default_factory=list)
    is_command: bool = False
    trained: str | None = None


def check_plugin(plugin: PluginRecord | str) -> PluginReport:
    """Load a plugin and train with it, in a new process.

    What the plugin prints goes to stderr, and so does the traceback of what fails if `plugrad --debug` asks for it.

    Args:
        plugin: an installed one, or a file or `"package.module:Name"`.

    Returns:
        The report.
    """
    known: dict[str, Any] = {"name": plugin, "kind": "plugin", "value": plugin}
    if not isinstance(plugin, str):
        known = {each: getattr(plugin, each) for each in ("name", "kind", "value", "distribution", "version")}
    if not isinstance(plugin, str) and (error := obstacle(plugin)):
        return PluginReport(**known, reason=str(error))
    with TemporaryFile("w+") as asked, TemporaryFile("w+") as answered:
        json.dump([known, None if isinstance(plugin, str) else asdict(plugin)], asked)
        asked.flush()
        asked.seek(0)
        process = start_interpreter(_CHECK, asked.fileno(), answered.fileno())
        try:
            process.wait()
        finally:
            process.kill()  # after Ctrl-C, which reaches this process only
        answered.seek(0)
        answer = answered.read()
    if not answer:
        reason = f"the process that loads and trains with it ended with code {process.returncode} without an answer"
        return PluginReport(**known, reason=reason)
    return PluginReport(**json.loads(answer))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.option("--check", metavar="NAME|FILE.py", help="Train with this plugin and show its hooks.")
@debug_option
@click.pass_context
def plugins(ctx: click.Context, as_json: bool, check: str | None) -> None:
    """List the installed plugins.

    These are backends, algorithms, listeners, commands, collectives, launchers. None is imported, except the one that
    --check names: a tiny learner is built with it in a process of its own, and updated once. The exit code is 1 if that
    fails. --debug shows the traceback.
    """
    if check is None:
        _list(list_plugins(), as_json)
        return
    reports = _reports(check)
    if as_json:
        click.echo(json.dumps([asdict(report) for report in reports], indent=2))
    else:
        _show(reports)
    ctx.exit(FAILED if any(report.reason for report in reports) else 0)


def _list(records: list[PluginRecord], as_json: bool) -> None:
    if as_json:
        found = [{**asdict(record), "problem": _problem(record)} for record in records]
        click.echo(json.dumps(found, indent=2))
        return
    Console().print(_plugins_table(records))
    for problem in dict.fromkeys(filter(None, map(_problem, records))):
        click.echo(problem)


def _plugins_table(records: list[PluginRecord]) -> Table:
    """A table of plugins, one per row, at most 80 characters wide."""
    table = text_table("kind", "name", "distribution", "needs", whole=("name",))
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
    if report.kind == "launcher":
        return f'is complete, for .learners(launcher="{report.name}")'
    if report.kind == "collective":
        suite = "plugrad.testing.collective_suite shows whether it sums"
        return f'is complete, for .learners(collective="{report.name}"); {suite}'
    return f"trains: one update {report.trained}"


def _hooks_table(hooks: Sequence[dict[str, Any]]) -> Table:
    table = text_table("hook", "how", "where")
    for each in hooks:
        table.add_row(each["hook"], "wraps" if each["wrapper"] else "answers", escape(each["where"]))
    return table
