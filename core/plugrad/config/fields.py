"""The declaration of a setting: its section, help, type and range.

Fluent methods, `--help`, the tables of a TOML file, checks and schedules all read it.
"""

import copy
import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

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
