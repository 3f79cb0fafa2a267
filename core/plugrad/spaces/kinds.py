"""The table of kinds of spaces: what plugrad knows of each class of `gymnasium.spaces`, and of those that you register.

Everything else asks the table. A space is one of three:

- **An array**: Box, Discrete, MultiDiscrete and MultiBinary. Its numbers are measured, as those of a Box, or choices.
  All else follows: measured actions have a Gaussian, and choices categorical distributions; choices of one-hot kinds
  are read as one-hot vectors, and all other numbers as they are.
- **Parts**: Dict and Tuple, whose parts are spaces again.
- **A kind of your own**, which `register` describes by an array that stands for each of its values.

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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple

from plugrad.errors import ConfigError, did_you_mean
from plugrad.types import Array

Bounds: TypeAlias = Literal["all", "of bytes", "none"]
"""Which bounds of a Box count where two spaces are compared."""


@dataclass(frozen=True, eq=False)
class Structure:
    """The parts of a Dict or Tuple.

    Args:
        parts: `(key, space)` of each part, in the order of a row.
        of_spaces: from such a space and new spaces of its parts to the space of these.
        of_values: from a space and a value of each part to the value of the whole.
        values: from a space and its value to the values of its parts.
        misfit: what is wrong with a value, as `(expected, found)`; None if `values` takes it.
        has_names: whether two spaces are compared by key, and not by place.
    """

    parts: Callable[[Any], Iterable[tuple[Any, Space[Any]]]]
    of_spaces: Callable[[Any, list[Space[Any]]], Space[Any]]
    of_values: Callable[[Any, list[Any]], Any]
    values: Callable[[Any, Any], Iterable[Any]]
    misfit: Callable[[Any, Any], tuple[str, Any] | None]
    has_names: bool


@dataclass(frozen=True, eq=False)
class SpaceKind:
    """One row of the table.

    Args:
        space_class: the class; classes derived from it are of this kind unless they have their own row.
        arguments: from a space to the constructor's arguments as JSON data; spaces in it stay spaces.
        make: from these arguments to the space.
        words: what of a space must be equal if rows of two are to be alike.
        is_array: whether values are one array of numbers.
        choices: from a space to the number of choices of each number, in int64; None: numbers are measured.
        is_one_hot: whether choices are observed as one-hot vectors.
        size: the argument that is the shape, or the length, of a value.
        structure: the parts; None: there are none.
        as_space: of a registered kind: the space of the arrays that stand for values, see `register`.
        to_array: likewise, from the space and one value to its array.
        from_array: likewise, from the space and one array to the value.
    """

    space_class: type[Any]
    arguments: Callable[[Any], dict[str, Any]]
    make: Callable[[Mapping[str, Any]], Space[Any]]
    words: Callable[[Any, Bounds], str]
    is_array: bool = False
    choices: Callable[[Any], Any] | None = None
    is_one_hot: bool = False
    size: str | None = None
    structure: Structure | None = None
    as_space: Callable[[Any], Space[Any]] | None = None
    to_array: Callable[[Any, Any], Any] | None = None
    from_array: Callable[[Any, Array], Any] | None = None

    @property
    def name(self) -> str:
        """The name of the class."""
        return self.space_class.__name__


def _bound(values: Array) -> Any:
    uniform = values.size > 0 and bool(np.all(values == values.flat[0]))
    return values.flat[0].item() if uniform else values.tolist()


def _read_box(data: Mapping[str, Any]) -> Box:
    dtype, shape = np.dtype(data["dtype"]), tuple(data["shape"])
    low, high = (np.broadcast_to(np.asarray(data[key], dtype=dtype), shape) for key in ("low", "high"))
    return Box(low=low.copy(), high=high.copy(), dtype=dtype.type)


def _box_words(space: Box, bounds: Bounds) -> str:
    kind = "uint8" if space.dtype == np.uint8 else {"f": "float", "b": "bool"}.get(space.dtype.kind, "int")
    said = ""
    if bounds == "all" or (bounds == "of bytes" and kind == "uint8"):
        said = f" from {_numbers(space.low)} to {_numbers(space.high)}"
    return f"{kind} {list(space.shape)}{said}"


def _numbers(bound: Array) -> str:
    """A bound in few words; in float32, as those of rows are."""
    bound = bound.astype(np.float32) if bound.dtype.kind == "f" else bound
    same = bound.size and (bound == bound.flat[0]).all()
    return str(bound.flat[0].item()) if same else str(bound.ravel().tolist())


def _other_dtype(space: Space[Any]) -> dict[str, str]:
    """The dtype of a discrete space, if it is not int64."""
    return {} if space.dtype == np.int64 else {"dtype": str(space.dtype)}


def _read_dtype(data: Mapping[str, Any]) -> dict[str, Any]:
    return {"dtype": np.dtype(data["dtype"]).type} if "dtype" in data else {}


def _choice_words(space: Any, bounds: Bounds) -> str:
    numbers = int(space.n) if isinstance(space, Discrete) else space.nvec.tolist()
    start = f", start={np.asarray(space.start).tolist()}" if np.any(space.start) else ""
    return f"{kind_of(space).name}({numbers}{start})"


def _misfit_of_dict(space: Dict, value: Any) -> tuple[str, Any] | None:
    if isinstance(value, Mapping) and set(value) == set(space.spaces):
        return None
    return f"a dict of {list(space.spaces)}", list(value) if isinstance(value, Mapping) else type(
        value
    ).__name__


def _misfit_of_tuple(space: Any, value: Any) -> tuple[str, Any] | None:
    number = len(value) if isinstance(value, tuple | list) else 1
    if isinstance(value, tuple | list) and number == len(space.spaces):
        return None
    return f"a tuple of {len(space.spaces)}", f"{type(value).__name__} of {number}"


BOX = SpaceKind(
    Box,
    lambda space: {
        "low": _bound(space.low),
        "high": _bound(space.high),
        "shape": list(space.shape),
        "dtype": str(space.dtype),
    },
    _read_box,
    _box_words,
    is_array=True,
    size="shape",
)
DISCRETE = SpaceKind(
    Discrete,
    lambda space: {"n": int(space.n), "start": int(space.start), **_other_dtype(space)},
    lambda data: Discrete(data["n"], start=data["start"], **_read_dtype(data)),
    _choice_words,
    is_array=True,
    choices=lambda space: int(space.n),
    is_one_hot=True,
)
MULTI_DISCRETE = SpaceKind(
    MultiDiscrete,
    lambda space: {"nvec": space.nvec.tolist(), "start": space.start.tolist(), **_other_dtype(space)},
    lambda data: MultiDiscrete(np.array(data["nvec"]), start=np.array(data["start"]), **_read_dtype(data)),
    _choice_words,
    is_array=True,
    choices=lambda space: space.nvec.astype(np.int64),
    is_one_hot=True,
)
MULTI_BINARY = SpaceKind(
    MultiBinary,
    lambda space: {"n": list(space.n) if isinstance(space.n, tuple | list | np.ndarray) else int(space.n)},
    lambda data: MultiBinary(data["n"]),
    lambda space, bounds: f"MultiBinary({space.n})",
    is_array=True,
    choices=lambda space: 2,
    size="n",
)
TEXT = SpaceKind(
    Text,
    lambda space: {
        "max_length": space.max_length,
        "min_length": space.min_length,
        "charset": "".join(sorted(space.character_set)),
    },
    lambda data: Text(data["max_length"], min_length=data["min_length"], charset=data["charset"]),
    lambda space, bounds: str(space),
)
DICT = SpaceKind(
    Dict,
    lambda space: {"spaces": [[key, each] for key, each in space.spaces.items()]},
    lambda data: Dict([(key, each) for key, each in data["spaces"]]),
    lambda space, bounds: str(space),
    structure=Structure(
        lambda space: space.spaces.items(),
        lambda space, parts: Dict([*zip(space.spaces, parts, strict=True)]),
        lambda space, values: dict(zip(space.spaces, values, strict=True)),
        lambda space, value: [value[key] for key in space.spaces],
        _misfit_of_dict,
        has_names=True,
    ),
)
TUPLE = SpaceKind(
    Tuple,
    lambda space: {"spaces": list(space.spaces)},
    lambda data: Tuple(data["spaces"]),
    lambda space, bounds: str(space),
    structure=Structure(
        lambda space: enumerate(space.spaces),
        lambda space, parts: Tuple(parts),
        lambda space, values: tuple(values),
        lambda space, value: value,
        _misfit_of_tuple,
        has_names=False,
    ),
)
UNKNOWN = SpaceKind(Space, lambda space: {}, lambda data: Space(), lambda space, bounds: str(space))
"""What is known of all other spaces: they are no arrays, and cannot be written."""

KINDS: dict[type[Any], SpaceKind] = {
    each.space_class: each for each in (BOX, DISCRETE, MULTI_DISCRETE, MULTI_BINARY, TEXT, DICT, TUPLE)
}
num_registered = 0
"""How often `register` was called: what was asked of the table before may have another answer now."""


def register(
    space_class: type[Any],
    *,
    as_space: Callable[[Any], Space[Any]],
    to_array: Callable[[Any, Any], Any],
    from_array: Callable[[Any, Array], Any],
    arguments: Callable[[Any], dict[str, Any]],
    make: Callable[[Mapping[str, Any]], Space[Any]],
) -> None:
    """Add a kind of space: environments may then have observations and actions of it, also in a Dict or Tuple.

    An array stands for each value: the networks, distributions, recordings and replay buffers have this array. An
    environment, and `Policy.predict`, have the values. Call this where the class is defined, so that each process that
    reads such a space has the row.

    Args:
        space_class: a class derived from `gymnasium.Space`. If values are not arrays, its `shape` is None, and a batch
            of values is a list.
        as_space: from a space to the Box, Discrete, MultiDiscrete or MultiBinary of the arrays.
        to_array: from a space and a value to its array.
        from_array: from a space and an array of `as_space(space)`, within its bounds, to the value.
        arguments: from a space to JSON data, with which configs and checkpoints name it.
        make: from these data to the space. They come from a file: make nothing that is large before you know it.

    Raises:
        ConfigError: it is no class of spaces, or another class of this name has a row.
    """
    if not (isinstance(space_class, type) and issubclass(space_class, Space)):
        raise ConfigError(f"register: {space_class!r} is no class derived from gymnasium.Space")
    name, place = space_class.__name__, f"{space_class.__module__}.{space_class.__qualname__}"
    for other in KINDS:
        found = f"{other.__module__}.{other.__qualname__}"
        if other.__name__ == name and found != place:
            raise ConfigError(
                f"register: {place} and {found} have one name, under which files know a space: rename the class"
            )
    global num_registered
    num_registered += 1
    KINDS[space_class] = SpaceKind(
        space_class,
        arguments,
        make,
        lambda space, bounds: f"{name}({', '.join(f'{k}={v!r}' for k, v in arguments(space).items())})",
        is_array=True,
        as_space=as_space,
        to_array=to_array,
        from_array=from_array,
    )


# --- what the table is asked ---


def kind_of(space: Any) -> SpaceKind:
    """The row of a space; `UNKNOWN` if its class has none."""
    kind = KINDS.get(type(space))
    if kind is None:
        kind = next((KINDS[each] for each in type(space).__mro__ if each in KINDS), UNKNOWN)
    return kind


def is_array(space: Any) -> bool:
    """Whether a value of the space is one array of numbers, or an array stands for it."""
    return kind_of(space).is_array


def is_box(space: Any) -> bool:
    """Whether the space is a Box, of which rows are the values as they are."""
    return kind_of(space) is BOX


def is_structured(space: Any) -> bool:
    """Whether the space is a Tuple or a Dict, whose values have parts."""
    return kind_of(space).structure is not None


def is_one_hot(space: Space[Any]) -> bool:
    """Whether numbers of the space are observed as one-hot vectors: those of Discrete and MultiDiscrete."""
    return kind_of(array_space(space)).is_one_hot


def number_of_choices(space: Space[Any]) -> Any:
    """The number of choices of each number of an array, in int64, whatever the space's dtype; None for a Box."""
    own = array_space(space)
    choices = kind_of(own).choices
    return None if choices is None else choices(own)


def sizes_of_choices(space: Space[Any]) -> tuple[int, ...] | None:
    """The number of choices of each number of an array, in C order; None for a Box."""
    number = number_of_choices(space)
    if isinstance(number, int):
        return (number,) * prod(array_space(space).shape or ())
    return None if number is None else tuple(number.ravel().tolist())


def first_choice(space: Space[Any]) -> Array:
    """The lowest choices of an array. In int64: sums in a small dtype of the space would overflow."""
    return np.asarray(getattr(array_space(space), "start", 0), np.int64)


def array_space(space: Any) -> Space[Any]:
    """The space of the arrays that stand for the values of a registered kind; another space is itself.

    Raises:
        ConfigError: `as_space` made no space of arrays.
    """
    kind = kind_of(space)
    if kind.as_space is None:
        return space  # type: ignore[no-any-return]
    own = kind.as_space(space)
    if not kind_of(own).is_array or kind_of(own).as_space is not None:
        raise ConfigError(
            f"as_space of {kind.name} returned {own!r}; expected: a Box, Discrete, MultiDiscrete or MultiBinary"
        )
    return own


def named_parts(space: Any) -> Mapping[Any, Space[Any]]:
    """The parts of a Dict by key; empty for any other space."""
    structure = kind_of(space).structure
    return dict(structure.parts(space)) if structure is not None and structure.has_names else {}


def dict_of(parts: Mapping[Any, Space[Any]]) -> Dict:
    """The Dict that has these parts by key."""
    return Dict(dict(parts))


def array_of(space: Space[Any], value: Any) -> Any:
    """The array of one value of a space without parts; the value of a space of arrays as it is."""
    to_array = kind_of(space).to_array
    return value if to_array is None else np.asarray(to_array(space, value), array_space(space).dtype)


def arrays_of(space: Space[Any], values: Any) -> Any:
    """The arrays of one value or of many.

    Args:
        space: of one value; without parts.
        values: one; or an array [..., *shape of the space] of them, or a list if the space has no shape.

    Returns:
        [..., *shape of `array_space`]; values of a space of arrays as they are.
    """
    if kind_of(space).to_array is None:
        return values
    if space.shape is None:
        is_batch = isinstance(values, list)
        return np.stack([array_of(space, each) for each in values]) if is_batch else array_of(space, values)
    found = np.asarray(values)
    leading = found.shape[: found.ndim - len(space.shape)]
    arrays = [array_of(space, each) for each in found.reshape(-1, *space.shape)]
    own = array_space(space)
    return np.array(arrays, own.dtype).reshape(*leading, *(own.shape or ()))


def values_of(space: Space[Any], arrays: Array) -> Any:
    """The values that arrays [N, ...] stand for: an array of N, or a list if the space has no shape."""
    from_array = kind_of(space).from_array
    if from_array is None:
        return arrays
    values = [from_array(space, each) for each in arrays]
    return values if space.shape is None else np.array(values, space.dtype)


# --- spaces in files ---


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
