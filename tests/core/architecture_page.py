"""What ARCHITECTURE.md says of the code and the code can say itself: the picture, and the lines of the walk.

    python tests/core/architecture_page.py

reads the table of layers on the page and the imports of `core/plugrad`, draws the picture anew, and writes the line of
each function that the page links to, as in [`Learner.update`](core/plugrad/learner/learner.py#L1).
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "ARCHITECTURE.md"
CORE = REPOSITORY / "core/plugrad"
COMMAND = "python tests/core/architecture_page.py"
LINK = re.compile(r"\[`([\w.]+)`\]\(((?:core|backends|plugins)/[\w/]+\.py)#L(\d+)\)")
PICTURE = re.compile(r"(?<=```text\n)┌.*?(?=```)", re.DOTALL)
WIDTH = 118


def page(present: str) -> str:
    """The page with its picture drawn anew and its links pointing at the lines of today."""
    drawn = PICTURE.sub(lambda _: picture(present), present)
    return LINK.sub(lambda link: f"[`{link[1]}`]({link[2]}#L{line_of(link[2], link[1])})", drawn)


def line_of(path: str, name: str) -> int:
    """The line of a function, class or method such as `Learner.update`."""
    body: list[ast.stmt] = ast.parse((REPOSITORY / path).read_text(encoding="utf-8")).body
    found: ast.stmt | None = None
    for part in name.split("."):
        [found] = [
            each
            for each in body
            if isinstance(each, ast.FunctionDef | ast.ClassDef)
            and each.name == part
            and not is_overload(each)
        ]
        body = found.body
    assert found is not None
    return found.lineno


def is_overload(node: ast.FunctionDef | ast.ClassDef) -> bool:
    """Whether this is a signature for type checkers only."""
    return any(ast.unparse(each).endswith("overload") for each in node.decorator_list)


def layers(text: str) -> dict[str, list[str]]:
    """`{layer: its packages}`, from the table of the page, the highest first."""
    rows = re.findall(r"^\| (\d) \| (.+?) \|", text, re.MULTILINE)
    return {layer: re.findall(r"`(\w+)`", packages) for layer, packages in rows}


def picture(text: str) -> str:
    """A box for each layer, with its packages and those of the next layer that it imports."""
    table = layers(text)
    boxes = []
    for layer, packages in table.items():
        next_layer = table.get(str(int(layer) - 1), [])
        used = {each for package in packages for each in imported(package)}
        lines = wrap(f"{layer}  {'  '.join(packages)}", WIDTH - 4, subsequent_indent="   ")
        if next_layer:
            imports = " ".join(each for each in next_layer if each in used)
            lines += wrap(f"   ↓ {imports}", WIDTH - 4, subsequent_indent="     ")
        boxes.append("\n".join(f"│ {line:<{WIDTH - 4}} │" for line in lines))
    edge = "─" * (WIDTH - 2)
    return f"┌{edge}┐\n" + f"\n├{edge}┤\n".join(boxes) + f"\n└{edge}┘\n"


def files_of(package: str) -> Iterator[Path]:
    """Its files, without what is copied as templates of other distributions."""
    loose = CORE / f"{package}.py"
    yield from [loose] if loose.exists() else []
    yield from (path for path in sorted((CORE / package).rglob("*.py")) if "templates" not in path.parts)


def imported(package: str) -> set[str]:
    """The packages of the core that it imports."""
    found = set()
    for path in files_of(package):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("plugrad"):
                found |= {f"{node.module}.{each.name}".split(".")[1] for each in node.names}
    return found - {package}


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
