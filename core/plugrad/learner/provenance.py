"""Which plugins a checkpoint was written with, and how those of today differ. Knows metadata; loads nothing."""

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from plugrad.errors import AlgorithmNotFoundError, BackendNotFoundError
from plugrad.hooks.manager import Plugin
from plugrad.hooks.registry import owner_of

_NAME_AND_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]* [A-Za-z0-9._+!-]+")
"""A checkpoint is a stranger's file: what could be no distribution's name is not shown as one."""


def describe(plugins: Sequence[Plugin]) -> list[dict[str, str | None]]:
    """Kind, name, distribution and version of each plugin that is not the core's own, as plain data.

    Distribution and version are None for a listener that is an object or a file of the user's.
    """
    return [
        {"kind": each.tier, "name": each.name, "distribution": owner, "version": version}
        for each in plugins
        if each.tier != "core"
        for owner, version in [owner_of(each) or (None, None)]
    ]


@contextmanager
def saying_who_had_it(path: Any, metadata: Mapping[str, Any]) -> Iterator[None]:
    """Within it, the error that a plugin is not installed says of which distribution it was when this was written.

    Args:
        path: of the checkpoint.
        metadata: of the checkpoint.
    """
    try:
        yield
    except (AlgorithmNotFoundError, BackendNotFoundError) as error:
        then = {(each["kind"], each["name"]): each for each in metadata.get("plugins", ())}
        owner = then.get((error.facts.get("kind"), error.facts.get("name")))
        if not owner or not owner["distribution"] or not _NAME_AND_VERSION.fullmatch(_owner(owner)):
            raise
        hint = f"It was written with {_owner(owner)}: pip install {owner['distribution']}"
        raise type(error)(f"{path}: {error} {hint}", **error.facts) from error


def warn_of_differences(path: Any, metadata: Mapping[str, Any], plugins: Sequence[Plugin]) -> None:
    """Warn if a checkpoint was written with other plugins, or other versions, than those that are active.

    Another backend is no difference: numbers do not depend on it.
    """
    then = {(each["kind"], each["name"]): each for each in metadata.get("plugins", ())}
    now = {(str(each["kind"]), str(each["name"])): each for each in describe(plugins)}
    found = [f"{_name(then[key])} was active and is not now" for key in then if _is_gone(key, now)]
    found += [f"{_name(now[key])} is active and was not then" for key in now if _is_gone(key, then)]
    found += [
        f"{_name(now[key])} was of {_owner(then[key])} then"
        for key in now
        if key in then and _owner(then[key]) != _owner(now[key])
    ]
    if found:
        warnings.warn(f"{path} was written with other plugins: {'; '.join(found)}", stacklevel=4)


def _is_gone(key: tuple[str, str], others: Mapping[tuple[str, str], Any]) -> bool:
    return key[0] != "backend" and key not in others


def _owner(plugin: Mapping[str, Any]) -> str:
    return f"{plugin['distribution']} {plugin['version']}" if plugin["distribution"] else "no distribution"


def _name(plugin: Mapping[str, Any]) -> str:
    return f"{plugin['kind']} {plugin['name']!r} ({_owner(plugin)})"
