"""The core knows no framework by name: what it says of frameworks comes from metadata and from backends.

Docstrings and comments may name them, as examples. Other places are listed here with their reasons.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "core/plugrad"
FRAMEWORK = re.compile(r"(?<![a-z])(torch|tensorflow|tf2?|jax|keras|flax)(?![a-z])", re.IGNORECASE)
REASONS = {
    "config/config.py": "the default of the setting `backend`",
    "importing/trusted_names.py": "base classes of the models that a stranger's file may name",
    "workers/process.py": "variables of the environment by which libraries choose their number of threads",
    "testing/strict/tensor.py": "the methods by which two frameworks hand a call to a tensor that is not theirs",
    "cli/__init__.py": "a variable of the environment that hides one framework's notices",
}
"""`{file or folder of the core: why it names a framework}`."""
LARGEST = {"config/config.py": 1, "workers/process.py": 2, "cli/__init__.py": 1}
"""How often the others may at most."""


def named_in(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of each framework that the code names, not its docstrings and comments."""
    tree = ast.parse(source)
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        words = [getattr(node, name, None) for name in ("id", "attr", "name", "arg", "module")]
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            words.append(node.value)
        for word in words:
            for found in FRAMEWORK.finditer(word if isinstance(word, str) else ""):
                yield getattr(node, "lineno", 0), found[0]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('"""Of torch."""\n# and tf2\nx = 1\n"of keras"', []),
        ('say("such as jax")', ["jax"]),
        ("import torch.nn", ["torch"]),
        ('words = f"{x} in flax"\ntorchvision = bytecode.tfoo', ["flax"]),
        ("def f(tf_graph): return tf2.x", ["tf", "tf2"]),
    ],
)
def test_it_finds_names_in_code_alone(source, names):
    assert [name for _, name in named_in(source)] == names


def files() -> list[str]:
    return [str(path.relative_to(CORE)) for path in sorted(CORE.rglob("*.py"))]


def test_no_code_of_the_core_names_a_framework():
    found = {name: list(named_in((CORE / name).read_text())) for name in files()}
    assert len(found) > 200
    wrong = {name: places for name, places in found.items() if places and name not in REASONS}
    assert not wrong, "say it without the name, or ask metadata or the backend for it"
    for name, most in LARGEST.items():
        assert 0 < len(found[name]) <= most, found[name]


def test_no_template_names_a_framework():
    templates = [
        path for path in (CORE / "cli/templates").rglob("*") if path.is_file() and path.suffix != ".pyc"
    ]
    assert len(templates) > 10
    assert not {path.name: names for path in templates if (names := FRAMEWORK.findall(path.read_text()))}
