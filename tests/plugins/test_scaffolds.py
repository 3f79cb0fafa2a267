"""What `plugrad new-plugin` writes proves itself, untouched: each kind's own tests, on every installed backend."""

import os
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner
from installed import installed

from plugrad.cli import main


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
