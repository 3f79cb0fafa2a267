"""Gymnasium spaces as data.

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

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.errors import ConfigError, did_you_mean
from plugrad.types import Array


def space_kind(space: "gym.Space[Any]") -> str:
    """The name of the space's class.

    Raises:
        ConfigError: the class is not listed above.
    """
    for cls in _WRITERS:
        if type(space) is cls:
            return cls.__name__
    known = ", ".join(cls.__name__ for cls in _WRITERS)
    raise ConfigError(f"a space of class {type(space).__name__} cannot be written; known: {known}")


def space_arguments(space: "gym.Space[Any]") -> dict[str, Any]:
    """The arguments that recreate the space; inner spaces stay spaces."""
    return _WRITERS[type(space)](space)


def make_space(kind: str, arguments: Mapping[str, Any]) -> "gym.Space[Any]":
    """Make a space.

    Args:
        kind: the name of its class, see `space_kind`.
        arguments: its arguments, see `space_arguments`.

    Returns:
        The space.

    Raises:
        ConfigError: an unknown class of space, or arguments that do not fit it.
    """
    if kind not in _READERS:
        raise ConfigError(
            f"unknown space {kind!r}; known: {', '.join(_READERS)}.{did_you_mean(str(kind), _READERS)}"
        )
    try:
        return _READERS[kind](arguments)
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        reason = f"{type(error).__name__}: {error!s:.200}"
        raise ConfigError(f"not a {kind} space: {dict(arguments)!s:.400} ({reason})") from error


def _bound(values: Array) -> Any:
    uniform = values.size > 0 and bool(np.all(values == values.flat[0]))
    return values.flat[0].item() if uniform else values.tolist()


def _box(space: gym.spaces.Box) -> dict[str, Any]:
    return {
        "low": _bound(space.low),
        "high": _bound(space.high),
        "shape": list(space.shape),
        "dtype": str(space.dtype),
    }


def _read_box(data: Mapping[str, Any]) -> gym.spaces.Box:
    dtype, shape = np.dtype(data["dtype"]), tuple(data["shape"])
    low, high = (np.broadcast_to(np.asarray(data[key], dtype=dtype), shape) for key in ("low", "high"))
    return gym.spaces.Box(low=low.copy(), high=high.copy(), dtype=dtype.type)


def _multi_discrete(space: gym.spaces.MultiDiscrete) -> dict[str, Any]:
    return {"nvec": space.nvec.tolist(), "start": space.start.tolist(), **_other_dtype(space)}


def _read_multi_discrete(data: Mapping[str, Any]) -> gym.spaces.MultiDiscrete:
    return gym.spaces.MultiDiscrete(
        np.array(data["nvec"]), start=np.array(data["start"]), **_read_dtype(data)
    )


def _other_dtype(space: "gym.Space[Any]") -> dict[str, str]:
    """The dtype of a discrete space, if it is not int64."""
    return {} if space.dtype == np.int64 else {"dtype": str(space.dtype)}


def _read_dtype(data: Mapping[str, Any]) -> dict[str, Any]:
    return {"dtype": np.dtype(data["dtype"]).type} if "dtype" in data else {}


def _multi_binary(space: gym.spaces.MultiBinary) -> dict[str, Any]:
    return {"n": list(space.n) if isinstance(space.n, tuple | list | np.ndarray) else int(space.n)}


def _text(space: gym.spaces.Text) -> dict[str, Any]:
    return {
        "max_length": space.max_length,
        "min_length": space.min_length,
        "charset": "".join(sorted(space.character_set)),
    }


_WRITERS: dict[type, Callable[[Any], dict[str, Any]]] = {
    gym.spaces.Box: _box,
    gym.spaces.Discrete: lambda s: {"n": int(s.n), "start": int(s.start), **_other_dtype(s)},
    gym.spaces.MultiDiscrete: _multi_discrete,
    gym.spaces.MultiBinary: _multi_binary,
    gym.spaces.Text: _text,
    gym.spaces.Dict: lambda s: {"spaces": [[key, sub] for key, sub in s.spaces.items()]},
    gym.spaces.Tuple: lambda s: {"spaces": list(s.spaces)},
}

_READERS: dict[str, Callable[[Mapping[str, Any]], "gym.Space[Any]"]] = {
    "Box": _read_box,
    "Discrete": lambda d: gym.spaces.Discrete(d["n"], start=d["start"], **_read_dtype(d)),
    "MultiDiscrete": _read_multi_discrete,
    "MultiBinary": lambda d: gym.spaces.MultiBinary(d["n"]),
    "Text": lambda d: gym.spaces.Text(d["max_length"], min_length=d["min_length"], charset=d["charset"]),
    "Dict": lambda d: gym.spaces.Dict([(key, sub) for key, sub in d["spaces"]]),
    "Tuple": lambda d: gym.spaces.Tuple(d["spaces"]),
}
