"""The line that an error names: the author's, never one of plugrad, of the backend or of its framework."""

import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import plugrad
from plugrad.hooks.author_line import author_line, in_no_library
from plugrad.hooks.backend_spec import BackendInfo
from plugrad.hooks.manager import Plugin

MINE = (__file__, 7)
OF_JSON = (json.decoder.__file__, 3)
OF_CORE = (str(Path(plugrad.__file__).parent / "learner/update/step.py"), 5)
OF_NUMPY = (str(Path(np.__file__).parent / "linalg/_linalg.py"), 9)


def of_mine(packages=(), implementation=None):
    backend = Plugin("backend", "no-such-entry-point", implementation)
    return in_no_library(
        [Plugin("algorithm", "ppo", None), backend], BackendInfo("mine", "1", packages=packages)
    )


@pytest.mark.parametrize(
    ("lines", "packages", "found"),
    [
        ([OF_NUMPY, OF_CORE, MINE, OF_JSON], (), MINE),
        ([OF_JSON, MINE], (), OF_JSON),
        ([OF_JSON, MINE], ("json",), MINE),
        ([("<string>", 1), OF_CORE], (), None),
        ([], (), None),
    ],
)
def test_lines_of_libraries_are_passed_over(lines, packages, found):
    assert author_line(lines, of_mine(packages)) == found


def test_a_backend_in_one_file_leaves_the_files_beside_it_to_the_author(tmp_path, monkeypatch):
    (tmp_path / "lonely_backend.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    import lonely_backend  # type: ignore[import-not-found]

    inside, beside = (lonely_backend.__file__, 1), (str(tmp_path / "my_loss.py"), 2)
    assert author_line([inside, beside], of_mine(implementation=lonely_backend)) == beside
    del sys.modules["lonely_backend"]


def test_the_framework_that_a_backends_metadata_names_is_a_library(monkeypatch, tmp_path):
    framework = ModuleType("tensorflow")
    framework.__path__ = [str(tmp_path / "tensorflow")]
    monkeypatch.setitem(sys.modules, "tensorflow", framework)
    found = in_no_library([Plugin("backend", "tf2", None)], BackendInfo("tf2", "1"))
    inside = (str(tmp_path / "tensorflow/python/ops.py"), 4)
    assert author_line([inside, MINE], found) == MINE
    assert author_line([inside, MINE], of_mine()) == inside


def test_a_package_that_begins_like_a_library_is_the_authors():
    folder = Path(np.__file__).parent
    beside = (f"{folder}_of_mine/loss.py", 2)
    assert author_line([OF_NUMPY, beside], of_mine()) == beside
