"""Loads a plugin and reports its hooks, or why it cannot be used."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import click

from plugrad.cli.typed_names import look_for_plugin
from plugrad.errors import PluginError, PlugradError
from plugrad.hooks.dispatch import hook_methods
from plugrad.hooks.manager import BACKEND_SPECIFICATIONS, Plugin, implementations, is_wrapper, specifications
from plugrad.hooks.plugin_records import PluginRecord, obstacle
from plugrad.hooks.registry import (
    get_algorithm,
    load_algorithm,
    load_backend,
    load_collective,
    load_command,
    load_listener,
    use_plugin,
)
from plugrad.learner.learner import CORE, Learner
from plugrad.learner.modules.build import no_loss_error

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


def check_file(text: str) -> PluginReport:
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
