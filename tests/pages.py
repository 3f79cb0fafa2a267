"""The code of the pages under docs/, as a reader would paste it: block after block, in one namespace for each page."""

import re
from pathlib import Path
from typing import Any

import pytest

from plugrad.errors import PlugradError

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n\n```text\n(\w+Error: .*?)\n```$)?", re.MULTILINE | re.DOTALL)


def assert_page_runs(name: str) -> None:
    """Run a page's Python; a block that an error's text follows must raise that (`...` in it stands for anything)."""
    page = (DOCS / name).read_text()
    found = list(BLOCK.finditer(page))
    assert found, f"{name} has no code"
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in found:
        code, message = block.groups()
        line = page[: block.start(1)].count("\n")
        compiled = compile("\n" * line + code, str(DOCS / name), "exec")
        if message is None:
            exec(compiled, names)
        else:
            _raises(message, compiled, names)


def _raises(message: str, compiled: Any, names: dict[str, Any]) -> None:
    with pytest.raises(PlugradError) as caught:
        exec(compiled, names)
    pattern = ".*".join(re.escape(part) for part in message.split("..."))
    said = f"{caught.type.__name__}: {caught.value}"
    assert re.fullmatch(pattern, said, re.DOTALL), f"the page says:\n{message}\nthe code says:\n{said}"
