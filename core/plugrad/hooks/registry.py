"""Finding plugins by name: entry points, read as metadata, loaded one at a time and only when named.

Importing plugrad, listing plugins and printing help load no plugin. A plugin that fails to load is reported with its
distribution, and does not affect the others.
"""

import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import Distribution, EntryPoint, distribution
from typing import Any

from plugrad.collective import Collective, Launcher, Place
from plugrad.errors import (
    AlgorithmNotFoundError,
    BackendNotFoundError,
    ConfigError,
    PluginConflictError,
    PluginError,
    PlugradError,
    did_you_mean,
)
from plugrad.hooks.local_plugins import load_local_plugin, whole_name
from plugrad.hooks.manager import SPECIFICATIONS, HookManager, Plugin, implementations
from plugrad.hooks.plugin_records import (
    PluginRecord,
    entries,
    is_installed,
    missing_framework,
    name_and_version,
    needed,
    obstacle,
    record_of,
)
from plugrad.importing.names import is_local_plugin

PLUGINS_VARIABLE = "PLUGRAD_PLUGINS"
_USED: dict[tuple[str, str], Plugin] = {}
"""Plugins from `use_plugin`, by tier and name."""
_NAMED: dict[tuple[str, str], str] = {}
"""What `use_plugin` got for them."""
_NOT_FOUND = {
    "backend": BackendNotFoundError,
    "algorithm": AlgorithmNotFoundError,
    "plugin": PluginError,
    "collective": ConfigError,
    "launcher": ConfigError,
}


def use_plugin(text: str) -> Plugin:
    """Load a plugin outside of a distribution; for the rest of the process it can be used as if it were installed.

    Args:
        text: a file `my_algo.py`, which gives an algorithm or a backend the name `my_algo`; or `"package.module:Name"`,
            which gives it the name `module`.

    Raises:
        PluginError: it fails to load, or its hooks do not match their specifications.
        PluginConflictError: an installed plugin has that name.
    """
    plugin = load_local_plugin(text)
    owner = owner_of(plugin)
    if owner is not None:
        raise PluginConflictError(
            f"{text}: {plugin} is the name of one of {owner[0]} {owner[1]}: rename the file or the module"
        )
    _USED[plugin.tier, plugin.name] = plugin
    _NAMED[plugin.tier, plugin.name] = whole_name(text)
    _algorithm_of.cache_clear()  # the id of a plugin that this one replaces may be another's later
    return plugin


def named_by_user(tier: str, name: str) -> str | None:
    """What `use_plugin` got for a plugin, a file by its absolute path; None: it is an installed one.

    Args:
        tier: "algorithm" or "backend".
        name: its short name.
    """
    return _NAMED[tier, name] if (tier, name) in _USED else None


def load_backend(name: str) -> Plugin:
    """Load the backend with this name.

    Raises:
        BackendNotFoundError: there is no such backend; the message names the closest one.
        MissingFrameworkError: it is installed, but its framework is not.
        PluginError: it fails to import, or its hooks do not match their specifications.
    """
    return _load("backend", name)


def load_algorithm(name: str) -> Plugin:
    """Load the algorithm with this name.

    Raises:
        AlgorithmNotFoundError: there is no such algorithm; the message names the closest one.
        PluginError: it fails to import, or its hooks do not match their specifications.
    """
    plugin = _load("algorithm", name)
    if "get_config_class" not in implementations(plugin):
        raise PluginError(
            f"{plugin} lacks the hook 'get_config_class': return your AlgorithmConfig subclass in it"
        )
    return plugin


def check_installed(kind: str, name: str) -> None:
    """Check that there is a plugin with this name, using only metadata: nothing is imported.

    Args:
        kind: "backend", "algorithm" or "plugin".
        name: the plugin's short name.

    Raises:
        BackendNotFoundError, AlgorithmNotFoundError, PluginError: there is none; the same error as on loading.
    """
    if (kind, name) not in _USED:
        _find(kind, name)


def get_algorithm(name: str) -> type[Any]:
    """The config class of an algorithm: `get_algorithm("ppo")` is `PPOConfig`.

    Raises:
        AlgorithmNotFoundError: there is no such algorithm.
        PluginError: it cannot be loaded, or its config class is another package's, whose algorithm (and loss) the
            config would get.
    """
    plugin = load_algorithm(name)
    config_class: type[Any] = plugin.implementation.get_config_class()
    if ("algorithm", name) not in _USED and name not in algorithms_beside(config_class):
        raise PluginError(
            f"{plugin}: its config {config_class.__module__}.{config_class.__name__} is not of its own package: "
            "derive a class there"
        )
    return config_class


def algorithm_of(config_class: type[Any]) -> Plugin | None:
    """The algorithm of a config class or of its base class; None for a plain `AlgorithmConfig`.

    Loads only algorithms in the same top-level package as one of the class's bases. Algorithms from `use_plugin` come
    first.
    """
    cls: Any = config_class  # a class with a metaclass of its own counts as hashable too
    return _algorithm_of(cls, tuple(sys.path), tuple(map(id, _USED.values())))


def algorithm_name(config_class: type[Any]) -> str | None:
    """The name of `algorithm_of` a config class; None: a plain config."""
    algorithm = algorithm_of(config_class)
    return algorithm.name if algorithm else None


@cache  # every build and save asks; keyed also by what else decides it
def _algorithm_of(config_class: type[Any], path: tuple[str, ...], plugins: tuple[int, ...]) -> Plugin | None:
    used = [name for tier, name in _USED if tier == "algorithm"]
    for name in (*used, *algorithms_beside(config_class)):
        plugin = load_algorithm(name)
        if plugin.implementation.get_config_class() in config_class.__mro__:
            return plugin
    return None


def algorithms_beside(cls: type[Any]) -> Iterator[str]:
    """Names of the algorithms in the same top-level package as a class or one of its bases, nearest first."""
    for each in cls.__mro__:
        package = each.__module__.split(".")[0]
        for entry, _ in entries("algorithm"):
            # `entry.module` would raise for a malformed third-party entry point.
            if re.split(r"[.:]", entry.value)[0] == package:
                yield entry.name


def owner_of(plugin: Plugin) -> tuple[str, str] | None:
    """Distribution and version of a plugin with an entry point; None for a user's object or file."""
    kind = "plugin" if plugin.tier == "listener" else plugin.tier
    owners = [owner for entry, owner in entries(kind) if entry.name == plugin.name]
    return name_and_version(owners[0]) if owners else None


def load_listeners(names: tuple[str | type, ...]) -> list[Plugin]:
    """Load the listeners that these names and the environment variable PLUGRAD_PLUGINS ask for.

    A name may also be a file `mine.py`, `"package.module:Name"`, or a class. A listener that is named must load; with
    `PLUGRAD_PLUGINS=all` a broken one only gives a warning.
    """
    asked = os.environ.get(PLUGINS_VARIABLE, "").strip()
    listeners = [load_listener(name) for name in names]
    if asked == "all":
        return listeners + list(_all_listeners(names, listeners))
    more = [name.strip() for name in asked.split(",") if name.strip() not in ("", "none", *names)]
    return listeners + [load_listener(name) for name in more]


def load_listener(name: str | type) -> Plugin:
    """Load the listener with this name or of this class.

    Raises:
        MissingFrameworkError: it is installed, but the package that it needs is not.
        PluginError: there is no such listener, it fails to import, or its hooks do not match their specifications.
    """
    return _load("plugin", name) if isinstance(name, str) else _listener(load_local_plugin(name))


def load_command(name: str) -> Any:
    """Load the plugin with this name; it is a click command if it can be called as `plugrad NAME`.

    Raises:
        PluginError: there is no such plugin, or it fails to import.
    """
    entry, owner = _find("plugin", name)
    return _import(entry, record_of("plugin", entry, owner))


def load_collective(name: str) -> type[Collective]:
    """Load the collective with this name.

    Raises:
        ConfigError: there is no such collective; the message names the closest one.
        MissingFrameworkError: it is installed, but what it `requires` is not.
        PluginError: it fails to import, or is not a complete subclass of `Collective`.
    """
    found: type[Collective] = _load_class("collective", name, Collective)
    return found


def load_launcher(name: str) -> type[Launcher]:
    """Load the launcher with this name.

    Raises:
        ConfigError: there is no such launcher; the message names the closest one.
        MissingFrameworkError: it is installed, but what it `requires` is not.
        PluginError: it fails to import, or is not a complete subclass of `Launcher`.
    """
    found: type[Launcher] = _load_class("launcher", name, Launcher)
    return found


def _load_class(kind: str, name: str, base: Any) -> Any:
    entry, owner = _find(kind, name)
    record = record_of(kind, entry, owner)
    found: Any = _import(entry, record)
    where = f"{kind} {name!r} of {record.distribution} {record.version} ({record.value})"
    if not (isinstance(found, type) and issubclass(found, base)):
        raise PluginError(f"{where} is no subclass of plugrad.collective.{base.__name__}")
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise PluginError(f"{where} lacks {', '.join(missing)}")
    requires: str | None = getattr(found, "requires", None)
    if requires is not None and not is_installed(requires):
        install = needed(owner, requires)[1] or (requires,)
        raise missing_framework(replace(record, requires=requires, install=install))
    return found


class _IsCommandError(PluginError):
    """A command was used as a listener."""


def _is_command(implementation: Any) -> bool:
    return callable(getattr(implementation, "make_context", None))  # as click calls commands


def _all_listeners(without: tuple[str | type, ...], loaded: Sequence[Plugin]) -> Iterator[Plugin]:
    """Those that a learner can have; a warning for each other one."""
    known = {id(each.implementation) for each in loaded}
    methods = ((name, each) for spec in SPECIFICATIONS for name, each in vars(spec).items())
    wrappable = {name.lstrip("_") for name, each in methods if hasattr(each, "specification")}
    for entry, owner in entries("plugin"):
        if entry.name in without:
            continue
        try:
            plugin = load_listener(entry.name)
            HookManager([plugin], {}).check_wrappable(wrappable)
        except _IsCommandError:
            continue
        except PlugradError as error:
            warnings.warn(
                f"plugin {entry.name!r} of {owner.name} {owner.version} left out: {error}", stacklevel=3
            )
            continue
        if id(plugin.implementation) not in known:  # one object may have two names
            known.add(id(plugin.implementation))
            yield plugin


def _load(kind: str, name: str) -> Plugin:
    tier = "listener" if kind == "plugin" else kind
    if (tier, name) in _USED:
        return _USED[tier, name]
    if kind == "plugin" and is_local_plugin(name):
        return _listener(load_local_plugin(name))
    entry, owner = _find(kind, name)
    record = record_of(kind, entry, owner)
    plugin = Plugin(tier, name, _import(entry, record))
    if kind == "plugin" and _is_command(plugin.implementation):
        raise _IsCommandError(f"plugin {name!r} is a command, it does not listen: plugrad {name}")
    _check_hooks(plugin, record)
    return plugin


def _check_hooks(plugin: Plugin, record: PluginRecord) -> None:
    try:
        implementations(plugin)
    except PluginError as error:
        owner, ours = f"{record.distribution} {record.version}", distribution("plugrad").version
        words = f"{record.kind} {record.name!r} of {owner} does not fit plugrad {ours}: {error}"
        raise PluginError(words, **error.facts) from error


def _listener(plugin: Plugin) -> Plugin:
    if plugin.tier != "listener":
        raise PluginError(
            f"{plugin} is no listener: it comes before the config that names it, by plugrad train --plugin FILE.py"
        )
    return plugin


def _import(entry: EntryPoint, record: PluginRecord) -> Any:
    if (error := obstacle(record)) is not None:
        raise error
    try:
        return entry.load()
    except (Exception, SystemExit) as error:  # a stranger's sys.exit() must not end the command
        if isinstance(error, ModuleNotFoundError) and record.requires == error.name:
            raise missing_framework(record) from error  # its metadata exists, but its files do not
        raise PluginError(
            f"{record.kind} {record.name!r} of {record.distribution} {record.version} fails to load "
            f"({record.value}): {type(error).__name__}: {error}"
        ) from error


def _backend_of(name: str) -> str:
    """The backend whose extra installs the framework of a name, such as that of "tensorflow"; else the name itself."""
    for entry, owner in entries("backend"):
        for each in owner.requires or ():
            requirement, _, marker = each.partition(";")
            framework = re.match(r"[\w.-]+", requirement)
            if framework and framework[0] == name and re.search(rf"extra == ['\"]{entry.name}['\"]", marker):
                return entry.name
    return name


def _find(kind: str, name: str) -> tuple[EntryPoint, Distribution]:
    for entry, owner in entries(kind):
        if entry.name == name:
            return entry, owner
    known = sorted(
        {entry.name for entry, _ in entries(kind)} | {used for tier, used in _USED if tier == kind}
    )
    meant = _backend_of(name) if kind == "backend" else name
    raise _NOT_FOUND[kind](
        f"no {kind} {name!r}; installed: {', '.join(known) or 'none'}.{did_you_mean(meant, known)}",
        kind=kind,
        name=name,
        known=known,
    )


# --- which collective a group uses ---


AUTO = "auto"
IN_ORDER = ("shared_memory", "gloo", "ray")
"""What "auto" tries. Third-party collectives are used only if they are named."""


def choose_collective(name: str, place: Place) -> str:
    """The collective to use.

    Args:
        name: a collective's name, or "auto".
        place: where the learners are.

    Returns:
        Its name.

    Raises:
        ConfigError: there is no collective with this name, or it cannot be used there; with "auto", none can.
        MissingFrameworkError: what it needs is not installed.
        PluginError: it fails to load.
    """
    if name != AUTO:
        reason = load_collective(name).why_not(place)
        if reason is not None:
            raise ConfigError(f"collective={name!r} cannot be used here: {reason}")
        return name
    reasons = {each: _why_not(each, place) for each in IN_ORDER}
    for each, reason in reasons.items():
        if reason is None:
            return each
    words = "; ".join(f"{each}: {reason}" for each, reason in reasons.items())
    raise ConfigError(f"collective='auto': none can be used here. {words}")


def _why_not(name: str, place: Place) -> str | None:
    try:
        return load_collective(name).why_not(place)
    except PlugradError as error:
        return str(error)
