"""Finding plugins by name: entry points, read as metadata, loaded one at a time and only when named.

Importing plugrad, listing plugins and printing help load no plugin. A plugin that fails to load is reported with its
distribution and does not disturb the others.
"""

import os
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distribution, distributions
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from plugrad.errors import (
    AlgorithmNotFoundError,
    BackendNotFoundError,
    MissingFrameworkError,
    PluginConflictError,
    PluginError,
    PlugradError,
    did_you_mean,
)
from plugrad.hooks.manager import Plugin, implementations

GROUPS = {"backend": "plugrad.backends", "algorithm": "plugrad.algorithms", "plugin": "plugrad.plugins"}
PLUGINS_VARIABLE = "PLUGRAD_PLUGINS"
_NOT_FOUND = {"backend": BackendNotFoundError, "algorithm": AlgorithmNotFoundError, "plugin": PluginError}


@dataclass(frozen=True)
class PluginRecord:
    """What metadata says about a plugin; nothing of it was imported.

    Args:
        name: the entry point's name.
        kind: "backend", "algorithm" or "plugin" (listeners, loggers, commands).
        distribution: who brings it.
        version: of the distribution.
        value: the entry point, `package:object`.
        requires: the distribution that its owner's extra of the same name asks for, such as "tensorflow", or None.
        installed: whether that distribution, or a module of its name, can be found.
    """

    name: str
    kind: str
    distribution: str
    version: str
    value: str
    requires: str | None
    installed: bool


def list_plugins() -> list[PluginRecord]:
    """All installed plugins, by kind and name. Reads metadata only."""
    records = [_record(kind, entry, owner) for kind in GROUPS for entry, owner in _entries(kind)]
    return sorted(records, key=lambda record: (list(GROUPS).index(record.kind), record.name))


def load_backend(name: str) -> Plugin:
    """The backend with this name, loaded.

    Raises:
        BackendNotFoundError: no such backend, with the closest name.
        MissingFrameworkError: it is installed and its framework is not.
        PluginError: it fails to import or its hooks do not fit.
    """
    return _load("backend", name)


def load_algorithm(name: str) -> Plugin:
    """The algorithm with this name, loaded.

    Raises:
        AlgorithmNotFoundError: no such algorithm, with the closest name.
        PluginError: it fails to import or its hooks do not fit.
    """
    plugin = _load("algorithm", name)
    if "get_config_class" not in implementations(plugin):
        raise PluginError(
            f"{plugin} lacks the hook 'get_config_class': return your AlgorithmConfig subclass in it"
        )
    return plugin


def check_installed(kind: str, name: str) -> None:
    """Raise what loading this plugin would raise if there is none of its name. Reads metadata only."""
    _find(kind, name)


def get_algorithm(name: str) -> type[Any]:
    """The config class of an algorithm: `get_algorithm("ppo")` is `PPOConfig`."""
    config_class: type[Any] = load_algorithm(name).implementation.get_config_class()
    return config_class


def algorithm_of(config_class: type[Any]) -> Plugin | None:
    """The algorithm whose config class this is, or that it derives from; None for a plain `AlgorithmConfig`.

    Loads only algorithms that live in the same top-level package as one of the class's bases.
    """
    for name in algorithms_beside(config_class):
        if get_algorithm(name) in config_class.__mro__:
            return load_algorithm(name)
    return None


def algorithms_beside(cls: type[Any]) -> Iterator[str]:
    """Names of the algorithms in the same top-level package as a class or one of its bases, the nearest first."""
    for each in cls.__mro__:
        package = each.__module__.split(".")[0]
        for entry, _ in _entries("algorithm"):
            # `entry.module` would raise for a malformed entry point of a stranger.
            if re.split(r"[.:]", entry.value)[0] == package:
                yield entry.name


def owner_of(plugin: Plugin) -> tuple[str, str] | None:
    """Distribution and version of a plugin that came by an entry point; None for an object or a file of the user's."""
    kind = "plugin" if plugin.tier == "listener" else plugin.tier
    owners = [owner for entry, owner in _entries(kind) if entry.name == plugin.name]
    return (owners[0].name, owners[0].version) if owners else None


def load_listeners(names: tuple[str, ...]) -> list[Plugin]:
    """The listeners that these names and the variable PLUGRAD_PLUGINS ask for.

    A name that ends in `.py` is a file of the user's. A listener asked for by name must load; with
    `PLUGRAD_PLUGINS=all` a broken one is a warning.
    """
    asked = os.environ.get(PLUGINS_VARIABLE, "").strip()
    listeners = [_load_file(name) if name.endswith(".py") else _load("plugin", name) for name in names]
    if asked == "all":
        return listeners + list(_all_listeners(without=names))
    more = [name.strip() for name in asked.split(",") if name.strip() not in ("", "none", *names)]
    return listeners + [_load("plugin", name) for name in more]


def _load_file(path: str) -> Plugin:
    spec = spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise PluginError(f"plugin file {path!r} is not there")
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise PluginError(f"plugin file {path!r} fails to load: {type(error).__name__}: {error}") from error
    plugin = Plugin("listener", path, module)
    implementations(plugin)
    return plugin


def _all_listeners(without: tuple[str, ...]) -> Iterator[Plugin]:
    for entry, owner in _entries("plugin"):
        if entry.name in without:
            continue
        try:
            yield _load("plugin", entry.name)
        except PlugradError as error:
            warnings.warn(
                f"plugin {entry.name!r} of {owner.name} {owner.version} left out: {error}", stacklevel=3
            )


def _load(kind: str, name: str) -> Plugin:
    entry, owner = _find(kind, name)
    record = _record(kind, entry, owner)
    if not record.installed:
        raise _missing_framework(record)
    plugin = Plugin("listener" if kind == "plugin" else kind, name, _import(entry, record))
    _check_hooks(plugin, record)
    return plugin


def _check_hooks(plugin: Plugin, record: PluginRecord) -> None:
    try:
        implementations(plugin)
    except PluginError as error:
        owner, ours = f"{record.distribution} {record.version}", distribution("plugrad").version
        words = f"{record.kind} {record.name!r} of {owner} does not fit plugrad {ours}: {error}"
        raise PluginError(words, **error.facts) from error


def _import(entry: EntryPoint, record: PluginRecord) -> Any:
    try:
        return entry.load()
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and record.requires == error.name:
            raise _missing_framework(record) from error  # its metadata is here and its files are not
        raise PluginError(
            f"{record.kind} {record.name!r} of {record.distribution} {record.version} fails to load "
            f"({record.value}): {type(error).__name__}: {error}"
        ) from error


def _missing_framework(record: PluginRecord) -> MissingFrameworkError:
    install = f'pip install "{record.distribution}[{record.name}]"'
    return MissingFrameworkError(
        f"{record.kind} {record.name!r} needs {record.requires}: {install}", requires=record.requires
    )


def _find(kind: str, name: str) -> tuple[EntryPoint, Distribution]:
    found = [(entry, owner) for entry, owner in _entries(kind) if entry.name == name]
    if not found:
        known = sorted({entry.name for entry, _ in _entries(kind)})
        raise _NOT_FOUND[kind](
            f"no {kind} {name!r}; installed: {', '.join(known) or 'none'}.{did_you_mean(name, known)}",
            kind=kind,
            name=name,
            known=known,
        )
    if len(found) > 1:
        owners = " and ".join(f"{owner.name} {owner.version}" for _, owner in found)
        raise PluginConflictError(f"{kind} {name!r} is claimed by {owners}: uninstall all but one")
    return found[0]


def _record(kind: str, entry: EntryPoint, owner: Distribution) -> PluginRecord:
    requires = _requirement(owner, entry.name)
    installed = requires is None or _is_installed(requires)
    return PluginRecord(entry.name, kind, owner.name, owner.version, entry.value, requires, installed)


def _is_installed(name: str) -> bool:
    """Whether a distribution has this name, or a module: tensorflow may come from another distribution."""
    try:
        distribution(name)
    except PackageNotFoundError:
        return "." not in name and find_spec(name.replace("-", "_")) is not None
    return True


def _requirement(owner: Distribution, extra: str) -> str | None:
    marked = re.compile(rf"""extra\s*==\s*['"]{re.escape(extra)}['"]""")
    for requirement in owner.requires or ():
        if marked.search(requirement):
            return re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0]
    return None


def _entries(kind: str) -> tuple[tuple[EntryPoint, Distribution], ...]:
    # A new site directory must be seen, so the cache is keyed by the search path.
    return _scan(GROUPS[kind], tuple(sys.path))


@cache
def _scan(group: str, path: tuple[str, ...]) -> tuple[tuple[EntryPoint, Distribution], ...]:
    seen: set[str] = set()
    found = []
    for owner in distributions():
        name = re.sub(r"[-_.]+", "-", owner.name or "").lower()
        if name in seen:  # the same distribution further down the path is shadowed by this one
            continue
        seen.add(name)
        found += [(entry, owner) for entry in owner.entry_points if entry.group == group]
    return tuple(found)
