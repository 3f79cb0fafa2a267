"""The lists in setup.cfg against the folders on disk."""

import ast
import configparser
import os
import re
from collections.abc import Sequence
from importlib.metadata import distribution, packages_distributions, version
from pathlib import Path

import needs
import pytest

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = [ROOT / "core", ROOT / "backends", ROOT / "plugins"]

in_tox = pytest.mark.skipif(
    "TOX_ENV_NAME" not in os.environ,
    reason="only in tox: an editable install has the source tree, and entry points of its day",
)


def options(section: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser[section]


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def top_folders() -> dict[str, str]:
    """Top-level package -> its folder, as setup.cfg has it."""
    pairs = (line.split("=") for line in lines(options("options")["package_dir"]))
    return {package.strip(): folder.strip() for package, folder in pairs}


def packages_on_disk() -> set[str]:
    return {
        ".".join(init.parent.relative_to(root).parts)
        for root in SOURCE_ROOTS
        for init in root.rglob("__init__.py")
    }


def file_of(module: str) -> Path | None:
    """The source file of a module, found without importing it."""
    top, *rest = module.split(".")
    base = ROOT / top_folders()[top] / Path(*rest)
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def test_the_packages_are_the_folders_on_disk() -> None:
    listed = lines(options("options")["packages"])
    assert sorted(listed) == sorted(set(listed))
    assert set(listed) == packages_on_disk()


def test_every_folder_with_python_files_is_a_package() -> None:
    """But those of `plugrad new-plugin`, which are packages only where it has copied them to."""
    files = [path for root in SOURCE_ROOTS for path in root.rglob("*.py")]
    folders = {path.parent for path in files if "templates" not in path.parts}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_every_top_level_package_has_its_folder_and_its_types() -> None:
    expected = {
        f.name: str(f.relative_to(ROOT)) for root in SOURCE_ROOTS for f in root.iterdir() if f.is_dir()
    }
    assert top_folders() == {name: folder for name, folder in expected.items() if name.isidentifier()}
    assert [
        name for name, folder in top_folders().items() if not (ROOT / folder / "py.typed").is_file()
    ] == []
    assert lines(options("options.package_data")["*"].replace(",", "\n")) == ["py.typed", "tuned/*.toml"]


def declared_entry_points() -> list[tuple[str, str, str, str]]:
    """Group, name, module and attribute (empty where the module itself is meant) of each, without the extra."""
    pairs = [
        (group, [part.strip() for part in line.split("=")])
        for group, text in options("options.entry_points").items()
        for line in lines(text)
    ]
    return [(group, name, *target.partition(" [")[0].partition(":")[::2]) for group, (name, target) in pairs]


@pytest.mark.parametrize(("group", "name", "module", "attribute"), declared_entry_points())
def test_an_entry_point_names_something_that_exists(
    group: str, name: str, module: str, attribute: str
) -> None:
    """Read, not imported: the framework of a backend need not be installed."""
    path = file_of(module)
    assert path is not None, f"{group}: {name} = {module} has no file"
    defined = re.search(rf"^(def |class |import .*\b)?{attribute}\b", path.read_text(), re.MULTILINE)
    assert not attribute or file_of(f"{module}.{attribute}") or defined


@in_tox
def test_the_installed_distribution_declares_the_same_entry_points() -> None:
    installed = {(ep.group, ep.name, ep.module, ep.attr or "") for ep in distribution("plugrad").entry_points}
    assert installed == set(declared_entry_points())


def test_the_citation_is_of_the_version_that_is_installed() -> None:
    assert f"version: {version('plugrad')}\n" in (ROOT / "CITATION.cff").read_text()


@in_tox
def test_the_wheel_says_who_made_it_and_under_which_licence() -> None:
    said = distribution("plugrad").metadata
    assert (said["License-Expression"], said["Author"]) == ("Apache-2.0", "the plugrad authors")
    assert "reinforcement learning" in said["Keywords"]


@in_tox
def test_tox_tests_the_wheel_and_not_the_source_tree() -> None:
    import plugrad

    assert Path(plugrad.__file__).parent != ROOT / "core" / "plugrad"


OF_LOWEST = ("tf2-cpu", "jax", "ray")
"""Extras that `tox -e lowest` installs. `tox -m oldest` has the lowest torch."""


def bounds(of_extras: Sequence[str] = OF_LOWEST) -> dict[str, str]:
    """Distribution -> the lowest version that setup.cfg declares, these extras included."""
    extras = options("options.extras_require")
    tested = [options("options")["install_requires"], *(extras[name] for name in of_extras)]
    declared = lines("\n".join(tested))
    return {name.strip(): lowest.strip() for name, lowest in (line.split(">=") for line in declared)}


def test_extras_agree_on_one_distribution_of_pygame() -> None:
    """Two of them install the same module: pip lets the second overwrite the first, and breaks both on removal."""
    extras = lines("\n".join(options("options.extras_require").values()))
    assert "pygame" not in {line.partition(">")[0].strip() for line in extras}
    needs.extra("pygame")
    assert packages_distributions()["pygame"] == ["pygame-ce"]


def padded(version: str) -> str:
    """With three numbers."""
    return ".".join([*version.split("."), "0", "0"][:3])


def test_the_lowest_versions_that_are_declared_are_those_that_are_tested() -> None:
    pins = (line.split("==") for line in lines((ROOT / "constraints-lowest.txt").read_text()) if "==" in line)
    pinned = {name: padded(version) for name, version in pins}
    assert {
        name: padded(lowest) for name, lowest in bounds((*OF_LOWEST, "torch")).items()
    }.items() <= pinned.items()


@pytest.mark.skipif(
    os.environ.get("TOX_ENV_NAME") != "lowest", reason="only `tox -e lowest` has the lowest versions"
)
def test_the_lowest_versions_are_installed() -> None:
    assert {name: padded(version(name)) for name in bounds()} == {
        name: padded(lowest) for name, lowest in bounds().items()
    }


def test_the_jax_backend_imports_only_what_the_pages_name() -> None:
    """It is what a stranger could have written."""
    pages = ("hooks", "write-a-backend", "write-a-functional-backend")
    text = "\n".join((ROOT / f"docs/{page}.md").read_text() for page in pages)
    files = (ROOT / "backends/plugrad_jax").glob("*.py")
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text()))]
    found = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    names = {
        each.name for node in found if str(node.module).split(".")[0] == "plugrad" for each in node.names
    }
    assert len(names) > 20
    assert sorted(name for name in names if not re.search(rf"\b{name}\b", text)) == []


def test_the_readme_says_how_the_tests_are_run() -> None:
    command = "python -m pip install tox && tox"
    assert command in (ROOT / "README.md").read_text()
    assert command in (ROOT / ".ci" / "run").read_text()
