"""`plugrad new-plugin`: what it writes, and which names it refuses; tests/plugins runs what it wrote."""

import re
import tomllib

import pytest
from click.testing import CliRunner

from plugrad.cli import main

GROUPS = {"algorithm": "plugrad.algorithms", "backend": "plugrad.backends", "listener": "plugrad.plugins"}


@pytest.fixture
def plugrad(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, arguments, prog_name="plugrad")


@pytest.mark.parametrize("kind", GROUPS)
def test_a_distribution_is_written_under_its_name(plugrad, tmp_path, kind):
    result = plugrad("new-plugin", "quick-sand", "--kind", kind)
    assert result.exit_code == 0
    assert 'cd plugrad-quick-sand && python -m pip install -e ".[test]" && pytest' in result.stdout
    root = tmp_path / "plugrad-quick-sand"
    files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert files - {"tests/conftest.py"} == {
        "README.md",
        "pyproject.toml",
        "plugrad_quick_sand.py",
        "tests/test_quick_sand.py",
    }
    assert "emplate" not in "".join((root / file).read_text() for file in files)
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["name"] == "plugrad-quick-sand"
    assert {group: list(each) for group, each in project["entry-points"].items()} == {
        GROUPS[kind]: ["quick-sand"]
    }
    compile((root / "plugrad_quick_sand.py").read_text(), "plugrad_quick_sand.py", "exec")


def test_an_algorithm_is_what_one_gets_without_asking(plugrad, tmp_path):
    plugrad("new-plugin", "sand")
    assert "class SandConfig(AlgorithmConfig)" in (tmp_path / "plugrad-sand/plugrad_sand.py").read_text()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("My_SAC", "'My_SAC' cannot be the NAME in plugrad-NAME: .* type my-sac$"),
        ("plugrad-sac", "type sac$"),
        ("3po", "a-z first, .*; type po$"),
        ("a--b", "type a-b$"),
        ("../sac", "type sac$"),
        ("-", "No such option|single hyphens$"),
        ("", "single hyphens$"),
        ("ppo", "'ppo' is taken: algorithm 'ppo' of plugrad "),
        ("tf2", "'tf2' is taken: backend 'tf2' of plugrad "),
        ("early-stopping", "'early-stopping' is taken: plugin 'early-stopping' of plugrad "),
        ("listeners", "'listeners' is taken: there is a package plugrad_listeners already$"),
    ],
)
def test_a_name_that_cannot_be_is_refused_with_what_to_type(plugrad, tmp_path, name, words):
    result = plugrad("new-plugin", name)
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []
    assert re.search(words, result.stderr.strip())


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_is_there_already_stays_as_it_is(plugrad, tmp_path, kind):
    path = tmp_path / "plugrad-sand"
    if kind == "folder":
        path.mkdir()
    elif kind == "file":
        path.write_text("mine")
    else:
        path.symlink_to("nowhere")
    before = sorted(tmp_path.rglob("*"))
    result = plugrad("new-plugin", "sand")
    assert result.exit_code == 2
    assert "plugrad-sand is there already and stays as it is" in result.stderr
    assert sorted(tmp_path.rglob("*")) == before
