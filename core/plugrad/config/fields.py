"""The declaration of a setting, its section, help, type and range, and the check of a value.

Fluent methods, `--help`, the tables of a TOML file, checks and schedules all read the declaration. `checked` also
converts a value to the form in which configs keep it: plain Python numbers, lists instead of tuples (so that a config
equals itself when it is read from a file), and copies of containers of the caller.
"""

import copy
import dataclasses
import functools
import itertools
import math
import numbers
import re
import types
import typing
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NoReturn

import numpy as np

from plugrad.errors import ConfigError, did_you_mean
from plugrad.importing.names import importable_name

SECTIONS: Mapping[str, str] = types.MappingProxyType(
    {
        "environment": "the environment",
        "framework": "the backend that runs the update, and how",
        "training": "the update, and the algorithm's own settings",
        "learners": "the processes that run the update: this one, or remote learners",
        "rl_module": "the networks",
        "multi_agent": "which agents use which modules, and which modules learn",
        "env_runners": "how experience is sampled",
        "offline_data": "recorded episodes: to learn from, and to write",
        "evaluation": "when and how long the policy is evaluated",
        "reporting": "how much one iteration does",
        "debugging": "reproducibility",
        "plugins": "listeners to load",
    }
)

_PLAIN_KINDS = (bool, int, float, str)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FieldInfo:
    """The declaration of one setting of a config class.

    Attributes:
        name: the attribute, and the argument of the fluent method `section`.
        make_default: returns the default value.
        kinds: the types that a value may have (bool, int, float, str, dict, list); empty: any.
        nullable: None is a value.
        section: the fluent method that sets it, and its table in TOML.
        also_in: an older section, which still takes it.
        help: its meaning, as `--help` shows it. Default: the text in the fluent method's docstring.
        schedulable: a number, or a schedule `[[timestep, value], ...]`.
        variable: a number that the algorithm itself changes while training.
        for_all_modules: one value for all modules: `algorithm_config_overrides_per_module` cannot change it.
        importable: a class or function, kept as `"package.module:Name"`.
        code: the kinds of classes whose names it has, alone or in a list (`plugrad.importing.trusted_names`).
        choices: the allowed strings; None: any.
        minimum: the smallest allowed value.
        above: values must be greater than this.
        maximum: the largest allowed value.
        reason: why there is a maximum, as the end of a sentence.
        check: its own check, `check(info, value) -> value to keep`; it raises `ConfigError`.
        max_in_file: the largest value that a file may ask for; of a dict, `{key: the largest value}`.
        acts: a policy needs it when it acts, not training alone.
        off: the values with which it asks for nothing.
        with_many_agents: what to do in its place where an environment has many agents, which take only values in `off`.
            Empty: they take all.
        of_arrays: environments of tensors take only its default.
        new_episodes: it may change where a run goes on with new episodes.
        in_evaluation: `in_evaluation(value) -> value` that evaluations and recordings have. None: that of training.
    """

    name: str
    make_default: Callable[[], Any]
    kinds: frozenset[type]
    nullable: bool
    section: str = "training"
    also_in: str | None = None
    help: str = ""
    schedulable: bool = False
    variable: bool = False
    for_all_modules: bool = False
    importable: bool = False
    code: tuple[str, ...] = ()
    choices: tuple[str, ...] | None = None
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    reason: str = ""
    check: Callable[["FieldInfo", Any], Any] | None = None
    max_in_file: int | Mapping[str, int] | None = None
    acts: bool = False
    off: tuple[Any, ...] = ()
    with_many_agents: str = ""
    of_arrays: bool = False
    new_episodes: bool = False
    in_evaluation: Callable[[Any], Any] | None = None

    @property
    def names_code(self) -> bool:
        """Whether its value may have the name of a class or function."""
        return self.importable or bool(self.code)

    def is_in(self, section: str) -> bool:
        """Whether a section takes this setting."""
        return section in (self.section, self.also_in)


def field(default: Any, **declared: Any) -> Any:
    """Declare a setting of an `AlgorithmConfig` subclass.

        clip_param: float = field(0.2, minimum=0, schedulable=True, help="how far the policy may move")

    Args:
        default: the default value; lists and dicts are copied for every config.
        **declared: `section` (default "training"), `help`, and whatever else `FieldInfo` has. A subclass that
            redeclares a setting inherits what it leaves out: `lr: float = field(5e-5)` changes only the default.

    Returns:
        A dataclass field.

    Raises:
        TypeError: an argument has another name.
    """
    known = {f.name for f in dataclasses.fields(FieldInfo)} - {"name", "make_default", "kinds", "nullable"}
    if unknown := sorted(set(declared) - known):
        raise TypeError(f"field() has no argument {unknown[0]!r}; known: {', '.join(sorted(known))}")
    if isinstance(default, list | dict | set):
        return dataclasses.field(default_factory=lambda: copy.deepcopy(default), metadata=declared)
    return dataclasses.field(default=default, metadata=declared)


def _config_fields(cls: type[Any]) -> Mapping[str, FieldInfo]:
    """The settings of a config class by name: section by section, then those that algorithms add."""
    hints = _type_hints(cls)
    infos = [_field_info(cls, f, hints.get(f.name, Any)) for f in dataclasses.fields(cls)]
    return types.MappingProxyType({info.name: info for info in sorted(infos, key=partial(_place, cls))})


# A type checker takes the classes of configs, which are frozen dataclasses, for not hashable.
config_fields = typing.cast("Callable[[type[Any]], Mapping[str, FieldInfo]]", functools.cache(_config_fields))


def _place(cls: type, info: FieldInfo) -> int:
    """The position of a setting among others: its section's, if it is declared next to the section's method."""
    declaring = next(base for base in reversed(cls.__mro__) if info.name in _declared(base))
    sections = list(SECTIONS)
    return sections.index(info.section) if info.section in vars(declaring) else len(sections)


def _declared(cls: type) -> Mapping[str, Any]:
    found: Mapping[str, Any] = cls.__dict__.get("__dataclass_fields__", {})
    return found


def _field_info(cls: type, declared: "dataclasses.Field[Any]", hint: Any) -> FieldInfo:
    kinds, nullable = _kinds(hint)
    metadata = _inherited_metadata(cls, declared.name)
    return FieldInfo(
        name=declared.name,
        make_default=_default_factory(declared),
        kinds=kinds,
        nullable=nullable,
        **{"help": _documented(cls, metadata.get("section", "training"), declared.name), **metadata},
    )


def _documented(cls: type, section: str, name: str) -> str:
    """What the fluent method of a section says of a setting: its text without type and default."""
    for method in [vars(base)[section] for base in cls.__mro__ if section in vars(base)]:
        found = re.search(rf"^ +{name} \(.*?\): (.*?)\.\s+Default: `", method.__doc__ or "", re.M | re.S)
        if found:
            return " ".join(found[1].replace("`", "").split())
    return ""


def _default_factory(declared: "dataclasses.Field[Any]") -> Callable[[], Any]:
    if declared.default_factory is not dataclasses.MISSING:
        return declared.default_factory
    return lambda: declared.default


def _inherited_metadata(cls: type, name: str) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        fields = _declared(base)
        merged.update(fields[name].metadata if name in fields else {})
    return merged


def _type_hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except NameError:
        # An annotation may name a class that only a type checker imports: then the type is not checked.
        return {}


def _kinds(hint: Any) -> tuple[frozenset[type], bool]:
    members = [typing.get_origin(m) or m for m in _union_members(hint)]
    kinds = [_kind(m) for m in members if m is not types.NoneType]
    nullable = types.NoneType in members or Any in members
    return frozenset() if None in kinds else frozenset(k for k in kinds if k), nullable


def _union_members(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _kind(member: Any) -> type | None:
    if member in _PLAIN_KINDS:
        return typing.cast(type, member)
    if not isinstance(member, type):
        return None
    if issubclass(member, Mapping):
        return dict
    return list if issubclass(member, Collection) else None


# --- checks of a value ---


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
