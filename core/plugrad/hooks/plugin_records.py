"""Metadata of installed plugins. Neither plugins nor numpy are imported."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint

from plugrad.errors import MissingFrameworkError, PluginConflictError, PlugradError
from plugrad.hooks.entry_points import GROUPS, entries, extra_of, is_installed, name_and_version, needed


@dataclass(frozen=True)
class PluginRecord:
    """The metadata of a plugin, which is not imported.

    Args:
        name: the entry point's name.
        kind: "backend", "algorithm", "plugin" (listeners, loggers, commands) or "collective".
        distribution: the distribution that has it.
        version: the version of the distribution.
        value: the entry point, `package:object`.
        requires: the distribution that it needs besides plugrad, such as "tensorflow", or None. It comes from its
            owner's extra with the same name (or the extra that the entry point names, `module:Name [extra]`), else from
            its owner's dependencies; if there are several, a missing one.
        installed: whether all of them, or modules with their names, can be found.
        install: the alternatives for `pip install` if something is missing, such as `("plugrad[tf2]",
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
        """The command that installs what it needs: `pip install "plugrad[tf2]" (or plugrad[tf2-cpu])`."""
        return install_command(self.install)


def install_command(names: Sequence[str]) -> str:
    """The command that installs one of several distributions.

    Args:
        names: the alternatives for `pip install`, at least one.

    Returns:
        Such as `pip install "plugrad[tf2]" (or plugrad[tf2-cpu])`.
    """
    first, *others = names
    return f'pip install "{first}"' + "".join(f" (or {each})" for each in others)


def list_plugins() -> list[PluginRecord]:
    """All installed plugins, sorted by kind and name. Only reads metadata."""
    records = [record_of(kind, entry, owner) for kind in GROUPS for entry, owner in entries(kind)]
    return sorted(records, key=lambda record: (list(GROUPS).index(record.kind), record.name))


def obstacle(record: PluginRecord) -> PlugradError | None:
    """What metadata says against loading a plugin: its framework is missing, or another plugin has its name."""
    owners = [owner for entry, owner in entries(record.kind) if entry.name == record.name]
    if len(owners) > 1:
        who = " and ".join(f"{owner.name} {owner.version}" for owner in owners)
        return PluginConflictError(
            f"{record.kind} {record.name!r} is claimed by {who}: uninstall all but one"
        )
    return None if record.installed else missing_framework(record)


def record_of(kind: str, entry: EntryPoint, owner: Distribution) -> PluginRecord:
    """Make the record of one entry point.

    Args:
        kind: the plugin's kind, a key of `GROUPS`.
        entry: its entry point.
        owner: its distribution.

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
    """The error for a plugin whose framework is not installed, with the command that installs it."""
    return MissingFrameworkError(
        f"{record.kind} {record.name!r} needs {record.requires}: {record.command}", requires=record.requires
    )
