"""What the docstrings and comments of the core name by its whole path exists under that path."""

import importlib
import re
from pathlib import Path

import pytest

import plugrad

CORE = Path(plugrad.__file__).parent
ENTRY_POINT_GROUPS = {
    f"plugrad.{kind}" for kind in ("algorithms", "backends", "plugins", "collectives", "launchers")
}
IN_TEMPLATES = CORE / "cli/templates"


def named_in(path: Path) -> set[str]:
    return set(re.findall(r"`(plugrad(?:\.\w+)+)`?", path.read_text(encoding="utf-8"))) - ENTRY_POINT_GROUPS


def exists(name: str) -> bool:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part, None)
        return found is not None
    return False


FILES = [path for path in sorted(CORE.rglob("*.py")) if IN_TEMPLATES not in path.parents and named_in(path)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CORE)))
def test_names_in_docstrings_exist(path):
    assert {name for name in named_in(path) if not exists(name)} == set()


def test_a_name_that_does_not_exist_is_noticed():
    assert exists("plugrad.sampling.environments.make_env")
    assert not exists("plugrad.environments.make_env")
