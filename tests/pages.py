"""The code of the pages under docs/, as a reader would paste it: block after block, in one namespace for each page."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from plugrad.errors import PlugradError

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n\n```text\n(\w+Error: .*?)\n```$)?", re.MULTILINE | re.DOTALL)


FRAMEWORKS = {"torch": ("torch",), "tf2": ("keras", "tensorflow", "tf2"), "jax": ("jax", "nnx", "optax")}
"""Words of code that is written for one backend."""


def assert_page_runs(name: str) -> None:
    """Run a page's Python; a block that an error's text follows must raise that (`...` in it stands for anything)."""
    _run(name, None, {"__name__": "__main__"})


def names_of_page(name: str, backend: str) -> dict[str, Any]:
    """Run a page's Python without the blocks for other backends.

    Returns:
        What the page defines, importable from a module of the page's name.
    """
    module = ModuleType(name.removesuffix(".md").replace("-", "_"))
    sys.modules[module.__name__] = module
    _run(name, backend, vars(module))
    return vars(module)


def _run(name: str, backend: str | None, names: dict[str, Any]) -> None:
    page = (DOCS / name).read_text()
    found = list(BLOCK.finditer(page))
    assert found, f"{name} has no code"
    for block in found:
        code, message = block.groups()
        if backend is not None and _is_for_others(code, backend):
            continue
        line = page[: block.start(1)].count("\n")
        compiled = compile("\n" * line + code, str(DOCS / name), "exec")
        if message is None:
            exec(compiled, names)
        else:
            _raises(message, compiled, names)


def _is_for_others(code: str, backend: str) -> bool:
    meant = {each for each, words in FRAMEWORKS.items() if any(word in code for word in words)}
    return bool(meant) and backend not in meant


def _raises(message: str, compiled: Any, names: dict[str, Any]) -> None:
    with pytest.raises(PlugradError) as caught:
        exec(compiled, names)
    pattern = ".*".join(re.escape(part) for part in message.split("..."))
    said = f"{caught.type.__name__}: {caught.value}"
    assert re.fullmatch(pattern, said, re.DOTALL), f"the page says:\n{message}\nthe code says:\n{said}"
