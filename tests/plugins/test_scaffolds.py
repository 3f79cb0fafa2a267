"""What `plugrad new-plugin` writes proves itself, untouched: each kind's own tests, on every installed backend."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from plugrad.cli import main


def installed(root: Path) -> str:
    """A search path on which the distribution is found as if pip had put it there; tests/package asks pip."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    info = root / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [
        f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in each.items())
        for group, each in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return os.pathsep.join(path for path in (str(root), os.environ.get("PYTHONPATH")) if path)


@pytest.mark.parametrize(
    ("kind", "at_least"),
    # An algorithm is begun, installed and proven in tests/package, too.
    [pytest.param("algorithm", 8, marks=pytest.mark.long), ("backend", 400), ("listener", 2)],
)
def test_its_tests_pass_as_it_is(tmp_path, monkeypatch, kind, at_least):
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, ["new-plugin", "quick-sand", "--kind", kind]).exit_code == 0
    root = tmp_path / "plugrad-quick-sand"
    environment = {**os.environ, "PYTHONPATH": installed(root)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= at_least
    assert "failed" not in done.stdout
