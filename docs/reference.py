"""The reference of the site, written from the code while Sphinx reads a page.

A page asks for it by a block: `{class}`, `{module}` and `{settings}` with a name. So a page names modules and classes,
and what they hold is never typed. Names are those of tests/core/public_names.txt, which tests compare with the code.
"""

import inspect
import re
import warnings
from collections import defaultdict
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from plugrad import AlgorithmConfig, get_algorithm
from plugrad.cli.options import toml_literal
from plugrad.config import FieldInfo
from plugrad.config.serialize import encode_field, with_none_words

BLOCK = re.compile(r"^```\{(class|module|settings)\} (\S+)\n```$", re.MULTILINE)
NAMES = Path(__file__).parents[1] / "tests/core/public_names.txt"
WHOLE = {
    "Learner": "plugrad.Learner",
    "LearnerGroup": "plugrad.LearnerGroup",
    "RLModule": "plugrad.RLModule",
    "Algorithm": "plugrad.Algorithm",
}
"""Classes whose public names the list has one by one."""
ON_PAGES = {*WHOLE.values(), "plugrad.AlgorithmConfig"}
"""Classes that `{class}` blocks describe."""


def expanded(page: str) -> str:
    """A page with its blocks replaced by Markdown, and reStructuredText for autodoc in it."""
    return BLOCK.sub(lambda block: WRITERS[block[1]](block[2]), page)


def listed() -> dict[str, list[str]]:
    """The public names: `{module or class: its names}`."""
    names: dict[str, list[str]] = defaultdict(list)
    for line in NAMES.read_text().splitlines():
        where, name = line.split(": ")
        names[where].append(name)
    return names


def promised() -> set[str]:
    """Every public name as the reference must have it, by its whole path; settings stand in tables."""
    return {
        f"{WHOLE[where] if where in WHOLE else _home(where, name)}.{name}"
        for where, names in listed().items()
        if not where.endswith("fields()")
        for name in names
    }


# --- what the blocks become ----------------------------------------------------------------------------------


def _module(module: str) -> str:
    """The functions, classes and constants of a module; one that another module documents is only named."""
    names = listed()[module] or sorted(getattr(import_module(module), "__all__", ()))
    text = [f".. py:module:: {module}", ""]
    for name in names:
        value, home = _named(module, name), _home(module, name)
        kind = _kind(value)
        if inspect.ismodule(value):
            text += [f".. py:data:: {name}", "", f"   The module `{value.__name__}`.", ""]
        elif home != module:
            text += [f".. py:{kind}:: {name}", "   :no-index:", "", f"   The same as `{home}.{name}`.", ""]
        elif f"{module}.{name}" in ON_PAGES:
            text += [f"`{module}.{name}` has a page.", ""]
        elif kind == "class":
            text += [f".. autoclass:: {module}.{name}", "   :members:", *_without_settings(value), ""]
        else:
            text += [f".. auto{kind}:: {module}.{name}", ""]
    return _in_rst(text)


def _kind(value: Any) -> str:
    """As Python's domain of Sphinx has it; an alias of a type is data."""
    if inspect.isclass(value) and value.__module__.startswith("plugrad"):
        return "class"
    is_type = inspect.isclass(value) or hasattr(value, "__origin__")
    return "function" if callable(value) and not is_type else "data"


def _class(path: str) -> str:
    """A class with all its public members, and those with an underscore that subclasses override."""
    module, _, name = path.rpartition(".")
    cls = getattr(import_module(module), name)
    short = next((each for each, whole in WHOLE.items() if whole == path), None)
    names = listed()[short] if short else sorted(each for each in dir(cls) if each[0] != "_")
    text = [f".. autoclass:: {path}", ""]
    for each in names:
        text += [f"   {line}" if line else "" for line in _member(cls, path, each)]
    return _in_rst(text)


def _member(cls: type, path: str, name: str) -> list[str]:
    found = inspect.getattr_static(cls, name, None)
    if isinstance(found, property):
        return [f".. autoproperty:: {path}.{name}", ""]
    if callable(found) or isinstance(found, classmethod | staticmethod):
        return [f".. automethod:: {path}.{name}", ""]
    if found is not None:
        return [f".. autoattribute:: {path}.{name}", ""]
    return [f".. py:attribute:: {name}", "", "   An attribute of its objects.", ""]


def _settings(name: str) -> str:
    """A table of the settings of an algorithm, or of all: of an algorithm those that others do not have as they are."""
    common = AlgorithmConfig.fields()
    if name == "all":
        return "\n".join(
            f"## {section}\n\n{_table({k: v for k, v in common.items() if v.section == section})}"
            for section in dict.fromkeys(info.section for info in common.values())
        )
    fields = get_algorithm(name).fields()
    own = {key: info for key, info in fields.items() if key not in common or _differs(info, common[key])}
    return _table(own)


def _differs(info: FieldInfo, other: FieldInfo) -> bool:
    return _default(info) != _default(other)


def _table(fields: dict[str, FieldInfo]) -> str:
    rows = [f"| `{name}` | `{_default(info)}` | {_cell(info.help)} |" for name, info in fields.items()]
    return "\n".join(["| setting | default | meaning |", "| --- | --- | --- |", *rows, ""])


def _default(info: FieldInfo) -> str:
    value = encode_field(info, info.make_default())
    return toml_literal(value if info.choices else with_none_words(value)) or '""'


def _cell(text: str) -> str:
    return re.sub(r"([|{}\[\]*_<])", r"\\\1", text)


def _in_rst(lines: list[str]) -> str:
    return "\n".join(["```{eval-rst}", *lines, "```"])


def _without_settings(cls: type) -> list[str]:
    """Settings stand in tables; what a config inherits stands once."""
    if not issubclass(cls, AlgorithmConfig):
        return []
    return [f"   :exclude-members: {', '.join(cls.fields())}"]


WRITERS = {"module": _module, "class": _class, "settings": _settings}


# --- one object, one place -----------------------------------------------------------------------------------


def _home(module: str, name: str) -> str:
    """The module that documents an object: the first in the order of the list that has the same one."""
    value = _named(module, name)
    package = getattr(value, "__module__", module).partition(".")[0]
    if module != "plugrad" and "." not in module and not inspect.ismodule(value):
        return package  # of an algorithm
    for other, names in listed().items():
        if name in names and other.startswith("plugrad"):
            same = _named(other, name)
            if same is value or (
                type(same) is type(value) and not callable(same) and repr(same) == repr(value)
            ):
                return other
    return module


def _named(module: str, name: str) -> Any:
    """What a module has under a name, which may be an older one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return getattr(import_module(module), name)


def whole_name(names: tuple[str, ...], said: str) -> str | None:
    """The documented name that a text in backticks means, such as `Learner.update`.

    Args:
        names: all documented ones.
        said: what stands in the backticks.

    Returns:
        None if no name ends so, or several do.
    """
    found = _endings(names).get(said.removesuffix("()").removeprefix("~"), [])
    return found[0] if len(found) == 1 else None


@cache
def _endings(names: tuple[str, ...]) -> dict[str, list[str]]:
    endings = defaultdict(list)
    for name in names:
        parts = name.split(".")
        for start in range(len(parts)):
            endings[".".join(parts[start:])].append(name)
    return endings
