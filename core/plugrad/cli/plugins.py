"""`plugrad plugins`: the installed plugins, read from metadata; `--check` loads one and shows its hooks."""

import dataclasses
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from plugrad.cli.exits import FAILED, debug_option
from plugrad.cli.typed_names import look_for_plugin
from plugrad.errors import PluginError, PlugradError, did_you_mean
from plugrad.hooks.manager import (
    BACKEND_SPECIFICATIONS,
    Plugin,
    hook_methods,
    implementations,
    is_wrapper,
    specifications,
)
from plugrad.hooks.plugin_records import PluginRecord, list_plugins, obstacle
from plugrad.hooks.registry import (
    get_algorithm,
    load_algorithm,
    load_backend,
    load_collective,
    load_command,
    load_listener,
    use_plugin,
)
from plugrad.importing.names import is_local_plugin
from plugrad.learner.learner import CORE, Learner
from plugrad.learner.modules.build import no_loss_error

# --- loads a plugin and reports its hooks, or why it cannot be used ---

_LOSSES = {"compute_loss_for_module", "compute_losses", "update"}
"""Hooks of which one has to say what the loss is."""


@dataclass(frozen=True)
class PluginReport:
    """The result of loading a plugin.

    Attributes:
        name: the plugin's short name.
        kind: "backend", "algorithm", "plugin" or "collective"; for a listener in a file "listener".
        value: its entry point, or the file.
        distribution: the distribution that has it; None for a file.
        version: of the distribution.
        reason: why it cannot be used; None if it can.
        hooks: for each hook `hook` (its name), `wrapper` (whether it wraps) and `where` (`module:line`).
        is_command: whether it is called as `plugrad NAME`.
    """

    name: str
    kind: str
    value: str
    distribution: str | None = None
    version: str | None = None
    reason: str | None = None
    hooks: list[dict[str, Any]] = field(default_factory=list)
    is_command: bool = False


def check_record(record: PluginRecord) -> PluginReport:
    """Load an installed plugin."""
    report = PluginReport(record.name, record.kind, record.value, record.distribution, record.version)
    if record.kind == "collective":
        return _check_collective(report)
    loaders: dict[str, Callable[[], Plugin]] = {
        "backend": lambda: load_backend(record.name),
        "algorithm": lambda: load_algorithm(record.name),
        "plugin": lambda: load_listener(record.name),
    }
    report = _load_and_check(report, loaders[record.kind])
    if record.kind == "plugin" and report.reason and obstacle(record) is None:
        return _as_command(report)
    return report


def _check_collective(report: PluginReport) -> PluginReport:
    try:
        load_collective(report.name)
    except PlugradError as error:
        return replace(report, reason=str(error))
    return report


def _as_command(report: PluginReport) -> PluginReport:
    """The report of a plugin that is no listener: it can be used if it is a command."""
    try:
        is_command = isinstance(load_command(report.name), click.Command)
    except PlugradError:
        return report
    return replace(report, reason=None, is_command=True) if is_command else report


def _check_file(text: str) -> PluginReport:
    """Load a plugin that is in no distribution."""
    return _load_and_check(PluginReport(text, "plugin", text), lambda: use_plugin(look_for_plugin(text)))


def _load_and_check(report: PluginReport, load: Callable[[], Plugin]) -> PluginReport:
    try:
        plugin = load()
    except PlugradError as error:
        return replace(report, reason=str(error))
    report = replace(report, name=plugin.name, kind=report.kind if report.distribution else plugin.tier)
    report = replace(report, hooks=_hooks(plugin))
    try:
        _check_complete(plugin)
    except PlugradError as error:
        return replace(report, reason=str(error))
    return report


def _hooks(plugin: Plugin) -> list[dict[str, Any]]:
    return [
        {"hook": hook, "wrapper": is_wrapper(function), "where": _place(function)}
        for hook, function in implementations(plugin).items()
    ]


def _place(function: Callable[..., Any]) -> str:
    """`module:line`."""
    written = inspect.unwrap(function)
    return f"{written.__module__}:{written.__code__.co_firstlineno}"


def _check_complete(plugin: Plugin) -> None:
    """Refuse a backend that leaves a hook unanswered, and an algorithm without its own config or without a loss."""
    if plugin.tier == "algorithm":
        learner_class = get_algorithm(plugin.name)().get_learner_class()
        own = {
            hook
            for name, hook in hook_methods(Learner).items()
            if getattr(learner_class, name) is not getattr(Learner, name)
        }
        if not _LOSSES & {*own, *implementations(plugin)}:
            raise no_loss_error(plugin)
    if plugin.tier == "backend":
        answered = {hook for each in (*CORE, plugin) for hook in implementations(each)}
        missing = [hook for hook in specifications(BACKEND_SPECIFICATIONS) if hook not in answered]
        if missing:
            raise PluginError(f"{plugin} does not answer {', '.join(missing)}: see docs/hooks.md")


# --- `plugrad plugins`: the installed plugins, read from metadata; `--check` loads one and shows its hooks ---


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.option("--check", metavar="NAME|FILE.py", help="Load this plugin and show its hooks.")
@debug_option
@click.pass_context
def plugins(ctx: click.Context, as_json: bool, check: str | None) -> None:
    """List the installed plugins.

    These are backends, algorithms, listeners, commands and collectives. None of them is imported, except the one that
    --check names. The exit code is 1 if that one cannot be used.
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
        return [_check_file(name)]
    records = list_plugins()
    found = [record for record in records if record.name == name]
    if not found:
        known = sorted({record.name for record in records})
        raise PluginError(f"no plugin {name!r}; installed: {', '.join(known)}.{did_you_mean(name, known)}")
    return [check_record(record) for record in found]


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
    return (
        f'is used by .learners(collective="{report.name}")'
        if report.kind == "collective"
        else "its hooks fit"
    )


def _hooks_table(hooks: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("hook", "how", "where"):
        table.add_column(column, overflow="fold")
    for each in hooks:
        table.add_row(each["hook"], "wraps" if each["wrapper"] else "answers", escape(each["where"]))
    return table
