"""The layers of ARCHITECTURE.md: a package of core imports those of its own layer and of lower ones, in no circle."""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
CORE = REPOSITORY / "core/plugrad"
PACKAGES = sorted(
    each.parent
    for root in ("core", "backends", "plugins")
    for each in (REPOSITORY / root).glob("*/__init__.py")
)
PAGE = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")
TOP = "__init__"
"""The subpackage of what a package itself exports, such as `plugrad.Learner`."""
BESIDE, ABOVE = 8, 9
"""Layers of the subpackages that the table has beside the others, and of `plugrad/__init__`."""
NOT_COUNTED = ("templates", "__main__", "__main__.py")
"""Import paths of before; code of other distributions, which `plugrad new-plugin` copies; `python -m plugrad`."""
MOST_LOOSE_FILES = 21
MOST_LINES = 500
LONG_FILES = {
    CORE / "learner/learner.py",
    CORE / "group/learner_group.py",
    CORE / "algorithm/algorithm.py",
    CORE / "rl_module/rl_module.py",
}
"""One public class each, whole and with its reference."""
BUILDS_ON = {
    "plugrad_bc": "plugrad_offline",
    "plugrad_offline": "plugrad_sac",
    "plugrad_impala": "plugrad_ppo",
    "plugrad_pqn": "plugrad_dqn",
    "plugrad_qrdqn": "plugrad_dqn",
    "plugrad_rnd": "plugrad_ppo",
    "plugrad_tqc": "plugrad_sac",
}
"""Algorithms that are another one with a term more or less: `{package: the one whose exported names it may use}`."""
Edges = dict[tuple[str, str], list[str]]
"""`{(subpackage, subpackage that it imports): ["file:line"]}`."""


def layers(page: str) -> dict[str, int]:
    """`{subpackage of core: layer}`, from the table of ARCHITECTURE.md."""
    rows = re.findall(r"^\| (\d|beside) \| (.+?) \|", page, re.MULTILINE)
    found = {
        subpackage: BESIDE if layer == "beside" else int(layer)
        for layer, subpackages in rows
        for subpackage in re.findall(r"`(\w+)`", subpackages)
    }
    return {**found, TOP: ABOVE}


def subpackages_in(package: Path) -> set[str]:
    """Folders with code, and top-level files."""
    found = {each.parent.name for each in package.glob("*/*.py")} | {
        each.stem for each in package.glob("*.py")
    }
    return found - {*NOT_COUNTED}


def imports(package: Path) -> Edges:
    """Which subpackages of a package import which: at the top, within functions, and for annotations only."""
    edges: Edges = {}
    subpackages = subpackages_in(package)
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        if not {*NOT_COUNTED}.isdisjoint(place.parts):
            continue
        own = place.parts[0].removesuffix(".py")
        for module, line in imported(path):
            subpackage = subpackage_of(module, package.name, subpackages)
            if subpackage not in (None, own):
                edges.setdefault((own, str(subpackage)), []).append(f"{place}:{line}")
    return edges


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """The whole path of every name that a file imports, with the line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((each.name, node.lineno) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            yield from ((f"{node.module}.{each.name}", node.lineno) for each in node.names)


def subpackage_of(module: str, package: str, subpackages: set[str]) -> str | None:
    """The subpackage that an imported name is in; None for a name of another package."""
    first, *rest = module.split(".")
    if first != package:
        return None
    return rest[0] if rest and rest[0] in subpackages else TOP


def circle(edges: Edges) -> list[str]:
    """Packages that import each other in a circle, the first one again at the end; empty if there is none."""
    graph: dict[str, set[str]] = {}
    for importer, subpackage in edges:
        graph.setdefault(importer, set()).add(subpackage)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def arrows_upwards(edges: Edges, layer: dict[str, int]) -> dict[str, list[str]]:
    """`{"subpackage -> higher subpackage": where}`."""
    return {
        f"{importer} -> {subpackage}": where
        for (importer, subpackage), where in edges.items()
        if layer[importer] < layer[subpackage]
    }


def test_the_table_has_every_subpackage_of_the_core_and_no_other():
    assert set(layers(PAGE)) - {*NOT_COUNTED} == subpackages_in(CORE)


def test_no_subpackage_of_the_core_imports_a_higher_one():
    assert arrows_upwards(imports(CORE), layers(PAGE)) == {}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_no_subpackages_import_each_other_in_a_circle(package):
    edges = imports(package)
    assert circle(edges) == [], edges


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_the_core_imports_nothing_of_ours_and_others_the_core_alone(package):
    ours = {each.name for each in PACKAGES} - {package.name, "plugrad" if package != CORE else ""}
    found = [
        f"{path.relative_to(package)}:{line}: {module}"
        for path in package.rglob("*.py")
        if "templates" not in path.parts
        for module, line in imported(path)
        if module.split(".")[0] in ours and not is_built_on(package.name, module)
    ]
    assert found == []


def is_built_on(package: str, name: str) -> bool:
    """Whether a name is exported by the package that this one may build on."""
    module, _, exported = name.rpartition(".")
    if module.split(".")[0] != BUILDS_ON.get(package):
        return False
    return exported in import_module(module).__all__


def test_few_files_of_the_core_are_in_no_folder():
    assert len([each for each in CORE.glob("*.py") if each.stem not in (TOP, "__main__")]) <= MOST_LOOSE_FILES


# --- the tests above can fail -----------------------------------------------------------------------------------------

TABLE = """
| layer | subpackages | job |
| --- | --- | --- |
| 2 | `attic` | |
| 1 | `kitchen`, `hall` | |
| 0 | `cellar` | |
"""
HOUSE = {
    "__init__.py": "from house.attic import Box",
    "attic/__init__.py": "from house.attic.box import Box",
    "attic/box.py": "from house.hall import door\nclass Box: ...",
    "hall.py": "from house import cellar\nimport house.kitchen",
    "kitchen.py": "import os\nfrom house.cellar import jam",
    "cellar.py": "jam = 1",
}


def house(tmp_path: Path, **planted: str) -> Edges:
    """The imports of a small package with some more code."""
    for name, code in HOUSE.items():
        path = tmp_path / "house" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code + "\n" + planted.get(path.stem, ""))
    return imports(tmp_path / "house")


def test_a_sound_house_has_neither_circle_nor_arrow(tmp_path):
    edges = house(tmp_path)
    assert edges == {
        (TOP, "attic"): ["__init__.py:1"],
        ("attic", "hall"): ["attic/box.py:1"],
        ("hall", "cellar"): ["hall.py:1"],
        ("hall", "kitchen"): ["hall.py:2"],
        ("kitchen", "cellar"): ["kitchen.py:2"],
    }
    assert circle(edges) == []
    assert arrows_upwards(edges, layers(TABLE)) == {}


@pytest.mark.parametrize(
    "code",
    [
        "from house.hall import door",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import house.hall",
        "def cook():\n    from house import hall",
    ],
)
def test_a_planted_circle_on_one_layer_is_found(tmp_path, code):
    edges = house(tmp_path, kitchen=code)
    assert set(circle(edges)) == {"hall", "kitchen"}
    assert arrows_upwards(edges, layers(TABLE)) == {}


@pytest.mark.parametrize(
    ("code", "subpackage"),
    [
        ("from house.attic.box import Box", "attic"),
        ("from house import Box", TOP),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import house.attic", "attic"),
        ("def find():\n    from house import attic", "attic"),
    ],
)
def test_a_planted_arrow_upwards_is_found(tmp_path, code, subpackage):
    edges = house(tmp_path, cellar=code)
    assert list(arrows_upwards(edges, layers(TABLE))) == [f"cellar -> {subpackage}"]


def test_no_file_is_too_long_to_read() -> None:
    files = {path for package in PACKAGES for path in package.rglob("*.py")} - LONG_FILES
    assert len(files) > 300
    assert [path for path in files if len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES] == []
