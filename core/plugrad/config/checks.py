"""Checks of the value of a single setting.

`checked` also converts a value to the form in which configs keep it: plain Python numbers, lists instead of tuples (so
that a config equals itself when it is read from a file), and copies of the caller's containers.
"""

import itertools
import math
import numbers
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

import numpy as np

from plugrad.config.fields import FieldInfo
from plugrad.errors import ConfigError, did_you_mean
from plugrad.importing.names import importable_name


def checked(info: FieldInfo, value: Any) -> Any:
    """Check a value and convert it.

    Args:
        info: the setting.
        value: what the caller gave.

    Returns:
        The value as the config keeps it.

    Raises:
        ConfigError: the value has the wrong type or is out of range; names the setting.
    """
    value = plain(value)
    if value is None:
        return None if info.nullable else _refuse(info, value)
    if info.check is not None:
        return info.check(info, value)
    if info.importable:
        return _importable(info, value)
    if info.choices is not None:
        return _choice(info, value)
    if info.schedulable and isinstance(value, list):
        return _schedule(info, value)
    return _in_range(info, _of_kind(info, value) if info.kinds else value)


def plain(value: Any) -> Any:
    """A copy of some data, with numpy scalars, sets and tuples converted to plain Python."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    # Exact types: a named tuple or a list subclass may have a meaning beyond its items.
    return [plain(item) for item in value] if type(value) in (list, tuple) else value


def _of_kind(info: FieldInfo, value: Any) -> Any:
    kinds = info.kinds
    if isinstance(value, bool):
        return value if bool in kinds else _refuse(info, value)
    if isinstance(value, numbers.Real):
        return _number(info, value)
    if isinstance(value, str):
        return value if str in kinds else _refuse(info, value)
    if isinstance(value, Mapping):
        return dict(value) if dict in kinds else _refuse(info, value)
    if isinstance(value, Collection):
        return plain(list(value)) if list in kinds else _refuse(info, value)
    return _refuse(info, value)


def _number(info: FieldInfo, value: Any) -> float:
    if float in info.kinds:
        return _refuse(info, value) if math.isnan(value) else float(value)
    # People write large counts as 1e6.
    whole = isinstance(value, numbers.Integral) or float(value).is_integer()
    return int(value) if int in info.kinds and whole else _refuse(info, value)


def _in_range(info: FieldInfo, value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        low = info.minimum is None or value >= info.minimum
        above = info.above is None or value > info.above
        high = info.maximum is None or value <= info.maximum
        if not (low and above and high):
            if info.reason and not high:
                message = f"{info.name} must be at most {info.maximum}, got {value!r}: {info.reason}"
                raise ConfigError(message, field=info.name, found=value)
            _refuse(info, value)
    return value


def _choice(info: FieldInfo, value: Any) -> str:
    if isinstance(value, str) and value in (info.choices or ()):
        return value
    hint = did_you_mean(value, info.choices or ()) if isinstance(value, str) else ""
    raise ConfigError(f"{_expected(info)}, got {value!r}.{hint}", field=info.name, found=value)


def _schedule(info: FieldInfo, value: list[Any]) -> list[list[float]]:
    pairs = [pair for pair in value if isinstance(pair, list) and len(pair) == 2]
    if len(pairs) != len(value) or len(value) < 2:
        _refuse(info, value)
    times = [_count(info, pair[0], value) for pair in pairs]
    if times[0] != 0 or any(a >= b for a, b in itertools.pairwise(times)):
        _refuse(info, value)
    return [[t, _in_range(info, _level(info, pair[1], value))] for t, pair in zip(times, pairs, strict=True)]


def _count(info: FieldInfo, timestep: Any, value: list[Any]) -> int:
    whole = (
        isinstance(timestep, int | float) and not isinstance(timestep, bool) and float(timestep).is_integer()
    )
    return int(timestep) if whole else _refuse(info, value)


def _level(info: FieldInfo, level: Any, value: list[Any]) -> float:
    finite = isinstance(level, int | float) and not isinstance(level, bool) and math.isfinite(level)
    return float(level) if finite else _refuse(info, value)


def _importable(info: FieldInfo, value: Any) -> Any:
    if isinstance(value, str):
        return value
    if not callable(value):
        env_id = getattr(getattr(value, "spec", None), "id", None)
        hint = "" if env_id is None else f". Here: its id, {env_id!r}: plugrad makes as many as it needs"
        raise ConfigError(
            f'{info.name} must be a class or function, or its name "package.module:Name", got {value!r}{hint}',
            field=info.name,
        )
    # Objects without an importable name (a local class, a lambda) work in this process, and are saved as what they are
    # called; `to_dict` refuses them.
    return importable_name(value) or value


def _refuse(info: FieldInfo, value: Any) -> NoReturn:
    raise ConfigError(f"{_expected(info)}, got {value!r}", field=info.name, found=value)


def _expected(info: FieldInfo) -> str:
    """`lr must be a number >= 0, or [[0, value], [timestep, value], ...] with increasing timesteps`."""
    if info.choices is not None:
        words = "one of " + ", ".join(repr(choice) for choice in info.choices)
    else:
        words = " or ".join(_KIND_WORDS[kind] for kind in _KIND_WORDS if kind in info.kinds) + _range_words(
            info
        )
    if info.schedulable:
        words = (
            f"a number{_range_words(info)}, or [[0, value], [timestep, value], ...] with increasing timesteps"
        )
    return f"{info.name} must be {words or 'set'}{' or None' if info.nullable else ''}"


def _range_words(info: FieldInfo) -> str:
    maximum = (
        None if info.reason else info.maximum
    )  # a limit of what can be meant is said where it is exceeded
    if info.minimum is not None and maximum is not None:
        return f" from {info.minimum} to {maximum}"
    bounds = (("above", info.above), (">=", info.minimum), ("<=", maximum))
    return "".join(f" {word} {bound}" for word, bound in bounds if bound is not None)


_KIND_WORDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    dict: "a dict",
    list: "a list",
}
