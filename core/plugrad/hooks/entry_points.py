"""What installed distributions say of themselves: entry points and extras. Nothing of theirs is imported."""

import re
import sys
from functools import cache
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distribution, distributions
from importlib.util import find_spec

GROUPS = {"backend": "plugrad.backends", "algorithm": "plugrad.algorithms", "plugin": "plugrad.plugins"}
"""Entry-point groups by the kind of plugin."""


def entries(kind: str) -> tuple[tuple[EntryPoint, Distribution], ...]:
    """Every entry point of a kind, with who brings it."""
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


# Kept, for every save asks for both, and to parse metadata takes longer than to write a small checkpoint.
@cache
def name_and_version(owner: Distribution) -> tuple[str, str]:
    """The name and the version of a distribution."""
    return owner.name, owner.version


@cache
def requirement(owner: Distribution, extra: str) -> str | None:
    """The first distribution that an extra requires.

    Args:
        owner: the distribution that has the extra.
        extra: the extra's name.

    Returns:
        The required distribution's name, or None if there is no such extra.
    """
    marked = re.compile(rf"""extra\s*==\s*['"]{re.escape(extra)}['"]""")
    for each in owner.requires or ():
        if marked.search(each):
            return re.split(r"[^A-Za-z0-9_.-]", each, maxsplit=1)[0]
    return None


def is_installed(name: str) -> bool:
    """Whether a distribution has this name, or a module: tensorflow may come from another distribution."""
    try:
        distribution(name)
    except PackageNotFoundError:
        return "." not in name and find_spec(name.replace("-", "_")) is not None
    return True
