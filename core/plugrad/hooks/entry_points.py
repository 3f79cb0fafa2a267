"""Metadata of installed distributions: entry points and extras. Nothing is imported."""

import re
import sys
from functools import cache
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distribution, entry_points
from importlib.util import find_spec

GROUPS = {
    "backend": "plugrad.backends",
    "algorithm": "plugrad.algorithms",
    "plugin": "plugrad.plugins",
    "collective": "plugrad.collectives",
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
    known = {"plugrad", *map(_normalised, _requirements(distribution("plugrad")))}
    plain = tuple(each for each in _requirements(owner) if _normalised(each) not in known)
    return plain, (owner.name,) if plain else ()


def _requirements(owner: Distribution, extra: str | None = None) -> tuple[str, ...]:
    """The requirements of an extra, or the unconditional ones."""
    lines = [each.partition(";") for each in owner.requires or ()]
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
