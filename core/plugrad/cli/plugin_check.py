"""Is a plugin usable? Loads one, and says which hooks it has, or why it is not. Knows no command."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import click

from plugrad.errors import PluginError, PlugradError
from plugrad.hooks.backend_spec import BackendSpec
from plugrad.hooks.gradient_spec import GradientSpec
from plugrad.hooks.manager import Plugin, implementations, is_wrapper
from plugrad.hooks.registry import (
    PluginRecord,
    get_algorithm,
    load_algorithm,
    load_backend,
    load_command,
    load_listener,
    obstacle,
    use_plugin,
)
from plugrad.learner.learner import CORE


@dataclass(frozen=True)
class Report:
    """What came of loading a plugin.

    Args:
        name: by which it is known.
        kind: "backend", "algorithm", "plugin"; of a file "listener" for the last.
        value: its entry point, or the file.
        distribution: who brings it; None of a file.
        version: of the distribution.
        reason: why it is unusable; None if it is usable.
        hooks: of each hook its name, whether it wraps, and where it is written.
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


def check_record(record: PluginRecord) -> Report:
    """Load an installed plugin."""
    report = Report(record.name, record.kind, record.value, record.distribution, record.version)
    loaders: dict[str, Callable[[], Plugin]] = {
        "backend": lambda: load_backend(record.name),
        "algorithm": lambda: load_algorithm(record.name),
        "plugin": lambda: load_listener(record.name),
    }
    report = _filled(report, loaders[record.kind])
    if record.kind == "plugin" and report.reason and obstacle(record) is None:
        return _as_command(report)
    return report


def _as_command(report: Report) -> Report:
    """The report of what is no listener: usable if it is a command."""
    try:
        is_command = isinstance(load_command(report.name), click.Command)
    except PlugradError:
        return report
    return replace(report, reason=None, is_command=True) if is_command else report


def check_file(text: str) -> Report:
    """Load a plugin that is in no distribution."""
    return _filled(Report(text, "plugin", text), lambda: use_plugin(text))


def _filled(report: Report, load: Callable[[], Plugin]) -> Report:
    try:
        plugin = load()
    except PlugradError as error:
        return replace(report, reason=str(error))
    report = replace(report, name=plugin.name, kind=report.kind if report.distribution else plugin.tier)
    report = replace(report, hooks=_hooks(plugin))
    try:
        _complete(plugin)
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


def _complete(plugin: Plugin) -> None:
    """Refuse a backend with a hook that nobody answers, and an algorithm without a config of its own."""
    if plugin.tier == "algorithm":
        get_algorithm(plugin.name)
    if plugin.tier == "backend":
        answered = {hook for each in (*CORE, plugin) for hook in implementations(each)}
        hooks = (*vars(BackendSpec), *vars(GradientSpec))
        missing = [hook for hook in hooks if not hook.startswith("_") and hook not in answered]
        if missing:
            raise PluginError(f"{plugin} does not answer {', '.join(missing)}: see docs/hooks.md")
