"""Spaces in files.

In a written config a space is a dict with the name of its class under `"__space__"`, and its constructor's arguments:

| space | keys |
| --- | --- |
| `Box` | `low`, `high` (one number where all are equal, else nested lists), `shape`, `dtype` |
| `Discrete` | `n`, `start`, `dtype` if it is not int64 |
| `MultiDiscrete` | `nvec`, `start`, `dtype` if it is not int64 |
| `MultiBinary` | `n` (a number or a list) |
| `Text` | `max_length`, `min_length`, `charset` |
| `Dict` | `spaces`: `[[key, space], ...]`, in the space's order |
| `Tuple` | `spaces`: a list |

Numbers and strings are written as in `plugrad.config.serialize`. The state of a space's random generator is not kept.
"""

from collections.abc import Mapping
from typing import Any

from gymnasium.spaces import Space

from plugrad.errors import ConfigError, did_you_mean
from plugrad.spaces.kinds import KINDS, SpaceKind

GROUP = "plugrad.spaces"
"""The entry points of installed kinds: the name of the class, and the module that registers it."""


def kind_named(name: Any) -> SpaceKind | None:
    """The row that a file names; that of an installed distribution is imported. None: there is none.

    Raises:
        ConfigError: it fails to load.
    """
    if not isinstance(name, str):
        return None
    if (found := _named().get(name)) is not None:
        return found
    from importlib.metadata import entry_points  # it takes longer to import than the rest of `import plugrad`

    for entry in entry_points(group=GROUP, name=name):
        try:
            entry.load()
        except Exception as error:
            raise ConfigError(
                f"{entry.value} fails to load, which has the space {name!r}: {type(error).__name__}: {error}"
            ) from error
    return _named().get(name)


def _named() -> dict[str, SpaceKind]:
    """The rows by name; of a class that was defined again, the last."""
    return {each.name: each for each in KINDS.values()}


def recorded_kinds() -> list[str]:
    """The names of kinds of which there are rows: of arrays, and of what has parts."""
    return [each.name for each in KINDS.values() if each.is_array or each.structure is not None]


def size_arguments() -> dict[str, str]:
    """`{kind: the argument that is the shape of its arrays}` of kinds that have such an argument."""
    return {each.name: each.size for each in KINDS.values() if each.size is not None}


def space_kind(space: Space[Any]) -> str:
    """The name of the space's class.

    Raises:
        ConfigError: the class has no row of its own.
    """
    if type(space) in KINDS:
        return type(space).__name__
    known = ", ".join(_named())
    raise ConfigError(f"a space of class {type(space).__name__} cannot be written; known: {known}")


def space_arguments(space: Space[Any]) -> dict[str, Any]:
    """The arguments that recreate the space; inner spaces stay spaces."""
    return KINDS[type(space)].arguments(space)


def make_space(kind: str, arguments: Mapping[str, Any]) -> Space[Any]:
    """Make a space.

    Args:
        kind: the name of its class, see `space_kind`.
        arguments: its arguments, see `space_arguments`.

    Returns:
        The space.

    Raises:
        ConfigError: an unknown class of space, or arguments that do not fit it.
    """
    if (found := kind_named(kind)) is None:
        known = [*_named()]
        raise ConfigError(
            f"unknown space {kind!r}; known: {', '.join(known)}.{did_you_mean(str(kind), known)} A kind of your own is "
            f"known once the module that calls plugrad.spaces.register is imported, or by an entry point of {GROUP!r}"
        )
    try:
        return found.make(arguments)
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        reason = f"{type(error).__name__}: {error!s:.200}"
        raise ConfigError(f"not a {kind} space: {dict(arguments)!s:.400} ({reason})") from error
