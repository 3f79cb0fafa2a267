"""Plugins outside of a distribution: a file `my_algo.py`, or `"package.module:Name"`.

A file's hooks are its marked functions, or else the methods of the one class or object in it that has some. The kind of
a plugin follows from its hooks. It is loaded only if a user names it. An algorithm or a backend then has a short name,
that of its file, as if it were installed; a checkpoint has only this name.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isclass
from pathlib import Path
from typing import Any

from plugrad.errors import PluginError, PlugradError
from plugrad.hooks.manager import Plugin, implementations, marked_functions
from plugrad.importing.names import resolve_name

_TELLING = {"get_config_class": "algorithm", "backend_info": "backend"}


def short_name(text: str) -> str:
    """`my_algo` of "somewhere/my_algo.py" and of "somewhere.my_algo:plugin"."""
    return Path(text).stem if text.endswith(".py") else text.partition(":")[0].rpartition(".")[2]


def whole_name(text: str) -> str:
    """The file's absolute path, so that another process also finds it; a module's name unchanged."""
    return str(Path(text).resolve()) if text.endswith(".py") else text


def load_local_plugin(named: str | type) -> Plugin:
    """The plugin in a file, or the object with this name; for a class, an instance made without arguments.

    Raises:
        PluginError: it fails to load, it has no hook, its hooks do not match their specifications, or a file has
            several plugins.
        ConfigError: the text does not name anything that can be imported.
    """
    text = named if isinstance(named, str) else f"{named.__module__}:{named.__qualname__}"
    found = _plugin_in(Path(text), _from_file(Path(text))) if text.endswith(".py") else _imported(named)
    hooks = implementations(Plugin("plugin", text, found))
    tier = next((tier for hook, tier in _TELLING.items() if hook in hooks), "listener")
    return Plugin(tier, whole_name(text) if tier == "listener" else short_name(text), found)


def _plugin_in(path: Path, module: Any) -> Any:
    """The module if functions of it are hooks, else the one class or object in it that has hooks."""
    if marked_functions(module):
        return module
    found = {id(each): name for name, each in vars(module).items() if _is_plugin(each, module.__name__)}
    if not found:
        return module
    names = list(found.values())
    if len(names) > 1:
        texts = " or ".join(f"{path.stem}:{name}" for name in names)
        raise PluginError(
            f"plugin file {str(path)!r} has several plugins: name one, {texts}, in the file's folder"
        )
    only = getattr(module, names[0])
    try:
        return only() if isclass(only) else only
    except Exception as error:
        raise PluginError(f"plugin file {str(path)!r}: {names[0]}() fails: {_words(error)}") from error


def _is_plugin(value: Any, module_name: str) -> bool:
    """Whether a variable of a module is a plugin: a class of this module or an object, with marked methods."""
    if isclass(value):
        return value.__module__ == module_name and bool(marked_functions(value))
    return bool(marked_functions(type(value)))


def _from_file(path: Path) -> Any:
    """The module; its name is the file's absolute path, which no other module can have."""
    name = str(path.resolve())
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise PluginError(f"plugin file {str(path)!r} is not there")
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there for the module that defines them
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also sys.exit(): the command must not end as if it had succeeded
        del sys.modules[name]
        raise PluginError(f"plugin file {str(path)!r} fails to load: {_words(error)}") from error
    return module


def _imported(named: str | type) -> Any:
    try:
        found = resolve_name(named, where="plugin") if isinstance(named, str) else named
        return found() if isclass(found) else found
    except (PlugradError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise PluginError(f"plugin {named!r} fails to load: {_words(error)}") from error


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
