"""Docstrings as autodoc reads them: in this project they have Markdown's code and names in single backticks."""

import inspect
import re
from typing import Any

CODE = re.compile(r"(`+)(.+?)\1(\w?)", re.DOTALL)
NAME = re.compile(r"~?[A-Za-z_][\w.]*(\(\))?")
HEADER = re.compile(r"(Args|Returns|Yields|Raises|Attributes|References|Note):$")


def translate(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Make reStructuredText of a docstring's lines, in place; napoleon reads the sections afterwards."""
    if what in ("data", "attribute") and _is_of_type(obj, lines):
        lines[:] = [""]
        return
    found: list[str] = []
    prose: list[str] = []
    blocks = iter(range(len(lines)))
    for number in blocks:
        line = lines[number]
        end = _end_of_code(lines, number)
        if end is None:
            prose.append(line)
            continue
        found += [*_in_rst(prose), "", ".. code-block:: python", "", *_code(lines[number:end]), ""]
        prose = []
        for _ in range(number + 1, end):
            next(blocks)
    lines[:] = [*found, *_in_rst(prose)]


def _is_of_type(value: Any, lines: list[str]) -> bool:
    """Whether a constant has no text of its own: then autodoc shows that of its type, such as `dict`."""
    texts = [inspect.getdoc(each) for each in (type(value), value, getattr(value, "__origin__", None))]
    return bool(lines) and any(text and text.splitlines()[0].split() == lines[0].split() for text in texts)


def _end_of_code(lines: list[str], start: int) -> int | None:
    """The line behind the code that begins here, if any: a fence, `Example:`, or an indented text of no section."""
    line = lines[start]
    if line.startswith("```"):
        return lines.index("```", start + 1) + 1
    before = [each for each in lines[:start] if each and not each.startswith(" ")]
    if line == "Example:" or (
        line.startswith("    ") and not lines[start - 1] and before and not HEADER.match(before[-1])
    ):
        end = start + 1
        while end < len(lines) and (not lines[end] or lines[end].startswith(" ")):
            end += 1
        return end
    return None


def _code(lines: list[str]) -> list[str]:
    if lines[0].startswith("```"):
        return ["    " + each for each in lines[1:-1]]
    return lines[1:] if lines[0] == "Example:" else lines


def _in_rst(lines: list[str]) -> list[str]:
    """Prose: what is in backticks is a name that may be linked, or code; stars and bars are only themselves."""
    text, result, position = "\n".join(lines), "", 0
    for code in CODE.finditer(text):
        result += _escaped(text[position : code.start()])
        said = " ".join(code[2].split()) if "\n" in code[2] else code[2]
        quoted = f"`{said}`" if NAME.fullmatch(said) else f"``{said}``"
        result += quoted + (rf"\ {code[3]}" if code[3] else "")
        position = code.end()
    return (result + _escaped(text[position:])).split("\n") if lines else []


def _escaped(text: str) -> str:
    return re.sub(r"([*|\\]|(?<=\w)_(?!\w))", r"\\\1", text)
