"""`plugrad backends`: the backends, their frameworks and devices, and what each can do."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from plugrad.cli.exits import debug_option
from plugrad.cli.terminal import text_table
from plugrad.errors import PlugradError
from plugrad.hooks.manager import BACKEND_SPECIFICATIONS, Plugin, implementations, specifications
from plugrad.hooks.plugin_records import list_plugins
from plugrad.hooks.registry import load_backend
from plugrad.learner.learner import CORE


@dataclass(frozen=True)
class BackendReport:
    """What one backend says of itself.

    Attributes:
        name: its short name, for `--backend`.
        framework: its framework with the version; None: it needs none.
        devices: that it sees.
        capabilities: what it can do beyond the required hooks.
        problem: why nothing is known of it; None if it can be used.
    """

    name: str
    framework: str | None = None
    devices: Sequence[str] = ()
    capabilities: Sequence[str] = ()
    problem: str | None = None


@click.command(short_help="List the backends, their devices and what each can do.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@debug_option
def backends(as_json: bool) -> None:
    """List the backends with their frameworks, their devices and what each can do.

    Each framework that is installed is imported, which takes seconds. `plugrad plugins` imports none.
    `plugrad train --backend NAME` trains on one.
    """
    records = [record for record in list_plugins() if record.kind == "backend"]
    reports = [_report(record.name, record.requires) for record in records]
    if as_json:
        click.echo(json.dumps([vars(each) for each in reports], indent=2))
        return
    Console().print(_backends_table([each for each in reports if each.problem is None]))
    for each in reports:
        if each.problem:
            click.echo(each.problem)


def _backends_table(reports: Sequence[BackendReport]) -> Table:
    """A table of backends, one per row, at most 80 characters wide."""
    table = text_table("name", "framework", "devices", "can do", whole=("name",))
    for each in reports:
        cells = (each.name, each.framework or "-", ", ".join(each.devices), "\n".join(each.capabilities))
        table.add_row(*map(escape, cells))
    return table


def _report(name: str, framework: str | None) -> BackendReport:
    try:
        backend = load_backend(name)
        info: Any = backend.implementation.backend_info()
    except PlugradError as error:
        return BackendReport(name, problem=str(error))
    except Exception as error:  # a stranger's: it must not hide the others
        return BackendReport(name, problem=f"{name}: {type(error).__name__}: {error}")
    if missing := missing_answers(backend):
        return BackendReport(
            name, problem=f"{backend} does not answer {', '.join(missing)}: see docs/hooks.md"
        )
    needs = None if framework is None else f"{framework} {info.version}"
    return BackendReport(name, needs, info.devices, sorted(map(str, info.capabilities)))


def missing_answers(backend: Plugin) -> list[str]:
    """Hooks that a backend has to answer, and does not.

    Args:
        backend: the plugin.

    Returns:
        Their names.
    """
    answered = {hook for each in (*CORE, backend) for hook in implementations(each)}
    return [hook for hook in specifications(BACKEND_SPECIFICATIONS) if hook not in answered]
