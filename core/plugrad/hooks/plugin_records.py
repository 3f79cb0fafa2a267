"""What metadata says about installed plugins. Nothing of them is imported, nor is numpy."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint

from plugrad.errors import MissingFrameworkError, PluginConflictError, PlugradError
from plugrad.hooks.entry_points import GROUPS, entries, extra_of, is_installed, name_and_version, needed


@dataclass(frozen=True)
class PluginRecord:
    """What metadata says about a plugin; nothing of it was imported.

    Args:
        name: the entry point's name.
        kind: "backend", "algorithm", "plugin" (listeners, loggers, commands) or "collective".
        distribution: who brings it.
        version: of the distribution.
        value: the entry point, `package:object`.
        requires: the distribution that it needs beside plugrad, such as "tensorflow", or None: of its owner's extra of
            the same name (or of the one that the entry point names, `module:Name [extra]`), else of its owner's
            dependencies; of several one that is missing.
        installed: whether all of them, or modules of their names, can be found.
        install: what `pip install` gets, if something is missing, the first or another: `("plugrad[tf2]",
            "plugrad[tf2-cpu]")`.
    """

    name: str
    kind: str
    distribution: str
    version: str
    value: str
    requires: str | None
    installed: bool
    install: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """What to type to install what it needs, one or another: `pip install "plugrad[tf2]" (or plugrad[tf2-cpu])`."""
        return install_command(self.install)


def install_command(names: Sequence[str]) -> str:
    """What to type to install one of several distributions.

    Args:
        names: what `pip install` gets, the first or another; at least one.

    Returns:
        Such as `pip install "plugrad[tf2]" (or plugrad[tf2-cpu])`.
    """
    first, *others = names
    return f'pip install "{first}"' + "".join(f" (or {each})" for each in others)


def list_plugins() -> list[PluginRecord]:
    """All installed plugins, by kind and name. Reads metadata only."""
    records = [record_of(kind, entry, owner) for kind in GROUPS for entry, owner in entries(kind)]
    return sorted(records, key=lambda record: (list(GROUPS).index(record.kind), record.name))


def obstacle(record: PluginRecord) -> PlugradError | None:
    """What keeps a plugin from being loaded, as far as metadata says: a missing framework, or another of its name."""
    owners = [owner for entry, owner in entries(record.kind) if entry.name == record.name]
    if len(owners) > 1:
        who = " and ".join(f"{owner.name} {owner.version}" for owner in owners)
        return PluginConflictError(
            f"{record.kind} {record.name!r} is claimed by {who}: uninstall all but one"
        )
    return None if record.installed else missing_framework(record)


def record_of(kind: str, entry: EntryPoint, owner: Distribution) -> PluginRecord:
    """What metadata says about one entry point.

    Args:
        kind: of the plugin, a key of `GROUPS`.
        entry: its entry point.
        owner: the distribution that brings it.

    Returns:
        The record.
    """
    names, install = needed(owner, extra_of(entry))
    missing = [each for each in names if not is_installed(each)]
    requires = next(iter((*missing, *names)), None)
    return PluginRecord(
        entry.name, kind, *name_and_version(owner), entry.value, requires, not missing, install
    )


def missing_framework(record: PluginRecord) -> MissingFrameworkError:
    """The error for a plugin whose framework is not installed, with what to type."""
    return MissingFrameworkError(
        f"{record.kind} {record.name!r} needs {record.requires}: {record.command}", requires=record.requires
    )
