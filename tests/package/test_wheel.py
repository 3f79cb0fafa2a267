"""The wheel that a user gets: what is in it, and that it works in an environment of its own."""

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("build") is None and os.environ.get("TOX_ENV_NAME") != "package":
    pytest.skip("only `tox -e package` has what builds a wheel", allow_module_level=True)

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = [ROOT / "core", ROOT / "backends", ROOT / "plugins"]


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """The output of a command that must succeed, in an environment that knows nothing of the source tree."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PLUGRAD_PLUGINS")
    }
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release: an sdist, and the wheel from that."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    """Built as a release is."""
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with the wheel and nothing beside what it requires."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", wheel)
    return folder / "bin" / "python"


def test_the_wheel_has_every_source_file_and_no_other(wheel: Path) -> None:
    on_disk = {
        str(path.relative_to(root))
        for root in SOURCE_ROOTS
        for path in root.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert "plugrad/cli/templates/algorithm/tests/conftest.py" in on_disk
    in_wheel = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert in_wheel == on_disk
    assert len(in_wheel) > 50


def test_the_sdist_has_all_tests_and_what_they_read(dist: Path) -> None:
    """Who packages it for a distribution runs them on what was installed."""
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    folders = ("core", "backends", "plugins", "tests", "docs", "examples", "benchmarks")
    on_disk = {
        str(file.relative_to(ROOT))
        for folder in folders
        for suffix in ("py", "md", "json", "toml")
        for file in (ROOT / folder).rglob(f"*.{suffix}")
        if not any(part.startswith(".") for part in file.relative_to(ROOT).parts)
    }
    assert on_disk <= names
    assert {"tox.ini", "constraints.txt", "CHANGELOG.md", "tests/data/rliable.json"} <= names
    assert not any(part in name for name in names for part in ("__pycache__", ".pyc", "_cache/"))


def test_the_wheel_carries_licence_and_description(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    text = archive.read(metadata).decode()
    assert (ROOT / "README.md").read_text().strip() in text
    assert re.search("^License(-Expression)?: Apache-2.0$", text, re.MULTILINE)
    requirements = [line.split(";")[0] for line in text.splitlines() if line.startswith("Requires-Dist:")]
    assert requirements
    assert not any("==" in requirement for requirement in requirements), "those are for the tests alone"
    assert any(name.endswith("/LICENSE") for name in archive.namelist())


def test_it_imports_and_lists_its_plugins_without_any_framework(python: Path, tmp_path: Path) -> None:
    code = """
import plugrad
from importlib.util import find_spec
assert not find_spec("torch") and not find_spec("tensorflow") and not find_spec("ray")
print(*sorted(plugin.name for plugin in plugrad.list_plugins()))
"""
    assert {"ppo", "tf2", "torch"} <= set(run(python, "-c", code, cwd=tmp_path).split())


def test_a_missing_framework_is_named_with_what_to_type(python: Path, tmp_path: Path) -> None:
    code = """
from plugrad.errors import BackendNotFoundError
from plugrad.hooks.registry import load_backend
for name in ("torch", "tf2"):
    try:
        load_backend(name)
    except BackendNotFoundError as error:
        print(error)
"""
    said = run(python, "-c", code, cwd=tmp_path)
    assert 'pip install "plugrad[torch]"' in said
    assert 'pip install "plugrad[tf2]"' in said


def test_policy_files_that_frameworks_wrote_act_where_there_is_none(python: Path, tmp_path: Path) -> None:
    code = """
import sys
import numpy as np
import plugrad
from safetensors.numpy import load_file
for path in sys.argv[1:]:
    found = load_file(path.removesuffix("safetensors") + "expected")
    parts = {name.partition("/")[2]: each for name, each in found.items() if "/" in name}
    actions, _ = plugrad.load_policy(path).predict(parts.get("", parts))
    expected = found["actions"]
    np.testing.assert_allclose(actions, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    print(path)
"""
    files = sorted((ROOT / "tests" / "data" / "policies").glob("*/*.safetensors"))
    assert run(python, "-c", code, *files, cwd=tmp_path).split() == [str(each) for each in files] != []


def test_the_command_line_is_installed(python: Path, tmp_path: Path) -> None:
    assert "train" in run(python.parent / "plugrad", "--help", cwd=tmp_path)
    assert "torch" in run(python.parent / "plugrad", "plugins", cwd=tmp_path)
    run(python, "-m", "pip", "check")


def test_a_plugin_is_begun_installed_by_pip_and_proves_itself(python: Path, tmp_path: Path) -> None:
    """From the templates in the wheel; where no framework is, on the numpy reference. tests/plugins has all kinds."""
    plugrad, root = python.parent / "plugrad", tmp_path / "plugrad-quick-sand"
    run(plugrad, "new-plugin", "quick-sand", cwd=tmp_path)
    run(python, "-m", "pip", "install", "--quiet", "--editable", f"{root}[test]")
    assert "passed" in run(python, "-m", "pytest", "-q", cwd=root)
    assert "loads, and trains: one update" in run(plugrad, "plugins", "--check", "quick-sand", cwd=tmp_path)
