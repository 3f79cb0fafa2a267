"""Metadata of installed distributions and plugins: entry points, extras, records. No plugin is imported."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distribution, entry_points
from importlib.util import find_spec

from plugrad.errors import MissingFrameworkError, PluginConflictError, PlugradError

GROUPS = {
    "backend": "plugrad.backends",
    "algorithm": "plugrad.algorithms",
    "plugin": "plugrad.plugins",
    "collective": "plugrad.collectives",
    "launcher": "plugrad.launchers",
}
"""Entry-point groups by the kind of plugin."""


def entries(kind: str) -> tuple[tuple[EntryPoint, Distribution], ...]:
    """Every entry point of a kind, with its distribution."""
    # New site directories must be seen, so the cache is keyed by the search path.
    return _scan(GROUPS[kind], tuple(sys.path))


def extra_of(entry: EntryPoint) -> str:
    """The extra that a plugin needs: the one in its entry point `module:Class [torch]`, or one with its own name."""
    named = re.search(r"\[\s*([\w-]+)", entry.value)  # `EntryPoint.extras` fails where the rest is malformed
    return named[1] if named else entry.name


@cache
def _scan(group: str, path: tuple[str, ...]) -> tuple[tuple[EntryPoint, Distribution], ...]:
    # If distributions have the same name, the first on the path counts. importlib finds file names here: parsing the
    # metadata of all distributions takes longer than the rest of `plugrad --help`.
    return tuple((entry, entry.dist) for entry in entry_points(group=group) if entry.dist is not None)


# Cached: every save needs both, and parsing metadata takes longer than writing a small checkpoint.
@cache
def name_and_version(owner: Distribution) -> tuple[str, str]:
    """The name and the version of a distribution."""
    return owner.name, owner.version


@cache
def needed(owner: Distribution, plugin: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The distributions that a plugin needs besides plugrad, and how to install them.

    They are listed in the owner's extra with the plugin's name; without such an extra they are the owner's dependencies
    that plugrad does not have itself.

    Args:
        owner: the plugin's distribution.
        plugin: the entry point's name.

    Returns:
        Their names, and the alternatives for `pip install`, such as `("plugrad[tf2]", "plugrad[tf2-cpu]")`: the extra
        and its variants `<plugin>-...`.
    """
    if of_extra := _requirements(owner, plugin):
        extras = owner.metadata.get_all("Provides-Extra") or []
        variants = sorted(each for each in extras if each.startswith(f"{plugin}-"))
        return of_extra, tuple(f"{owner.name}[{extra}]" for extra in (plugin, *variants))
    plain = tuple(each for each in _requirements(owner) if _normalised(each) not in _of_plugrad())
    return plain, (owner.name,) if plain else ()


@cache
def _of_plugrad() -> frozenset[str]:
    return frozenset({"plugrad", *map(_normalised, _requirements(distribution("plugrad")))})


# Cached: importlib parses all metadata, the description as well, each time that it is asked.
@cache
def _requires(owner: Distribution) -> tuple[str, ...]:
    return tuple(owner.requires or ())


def _requirements(owner: Distribution, extra: str | None = None) -> tuple[str, ...]:
    """The requirements of an extra, or the unconditional ones."""
    lines = [each.partition(";") for each in _requires(owner)]
    marked = re.compile(rf"""extra\s*==\s*['"]{re.escape(extra or "")}['"]""")
    wanted = [line for line, _, marker in lines if (marked.search(marker) if extra else not marker)]
    return tuple(re.split(r"[^A-Za-z0-9_.-]", line, maxsplit=1)[0] for line in wanted)


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def is_installed(name: str) -> bool:
    """Whether a distribution or a module has this name: tensorflow may come from another distribution."""
    try:
        distribution(name)
    except PackageNotFoundError:
        return "." not in name and find_spec(name.replace("-", "_")) is not None
    return True


@dataclass(frozen=True)
class PluginRecord:
    """The metadata of a plugin, which is not imported.

    Args:
        name: the entry point's name.
        kind: "backend", "algorithm", "plugin" (listeners, loggers, commands), "collective" or "launcher".
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
