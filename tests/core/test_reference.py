"""The reference of the site has every public name and every setting; `tox -e docs` builds it."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from plugrad import list_plugins

DOCS = Path(__file__).parents[2] / "docs"
CONFIGS = {"AlgorithmConfig": "", "PPOConfig": "ppo", "BCConfig": "bc", "DQNConfig": "dqn"}
"""Sections of settings in public_names.txt, and the algorithm whose page has them; "" is the page of all."""


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    sys.path.insert(0, str(DOCS))
    try:
        import reference  # of the site, not of an installed package
    finally:
        sys.path.remove(str(DOCS))
    return reference


@pytest.fixture(scope="module")
def pages(reference: ModuleType) -> str:
    """All pages of the reference, as Sphinx reads them."""
    return "\n".join(reference.expanded(each.read_text()) for each in sorted((DOCS / "api").glob("*.md")))


def settings_on(page: str) -> set[str]:
    """The first cells of its tables."""
    return set(re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE))


def test_the_pages_have_every_public_name(reference, pages):
    said = set(re.findall(r"\.\. auto\w+:: (\S+)", pages))
    module = ""
    for kind, name in re.findall(r"^\s*\.\. (py:module|autoclass|py:attribute|py:data):: (\S+)", pages, re.M):
        module = name if kind in ("py:module", "autoclass") else module
        said.add(f"{module}.{name}")
    assert len(reference.promised()) > 500
    assert sorted(reference.promised() - said) == []


def test_no_module_stands_on_two_pages():
    blocks = [
        block
        for page in (DOCS / "api").glob("*.md")
        for block in re.findall(r"\{(?:module|class)\} (\S+)", page.read_text())
    ]
    assert sorted(blocks) == sorted(set(blocks))


@pytest.mark.parametrize("config", CONFIGS)
def test_the_tables_have_every_public_setting(reference, config):
    page = f"algorithms/{CONFIGS[config]}.md" if CONFIGS[config] else "api/settings.md"
    found = settings_on(reference.expanded((DOCS / "api/settings.md").read_text()))
    found |= settings_on(reference.expanded((DOCS / page).read_text()))
    assert set(reference.listed()[f"{config}.fields()"]) - found == set()


def test_every_algorithm_of_ours_has_a_page_with_its_settings():
    ours = {
        each.name for each in list_plugins() if each.kind == "algorithm" and each.distribution == "plugrad"
    }
    assert len(ours) >= 10
    for name in ours:
        assert f"```{{settings}} {name}\n```" in (DOCS / "algorithms" / f"{name}.md").read_text()


def test_a_name_is_linked_only_if_one_ends_so(reference):
    names = ("plugrad.Learner", "plugrad.Learner.update", "plugrad.Group.update")
    assert reference.whole_name(names, "Learner.update()") == "plugrad.Learner.update"
    assert reference.whole_name(names, "update") is None
    assert reference.whole_name(names, "nothing") is None


def test_markdown_in_docstrings_becomes_what_sphinx_reads(reference):
    sys.path.insert(0, str(DOCS))
    try:
        from docstrings import translate
    finally:
        sys.path.remove(str(DOCS))
    lines = [
        "The `Learner`s of `a + b`, *args.",
        "",
        "```python",
        "x = 1",
        "```",
        "",
        "Args:",
        "    a: of [B, *A].",
    ]
    translate(None, "function", "", translate, None, lines)
    assert lines[0] == r"The `Learner`\ s of ``a + b``, \*args."
    assert lines[lines.index(".. code-block:: python") + 2] == "    x = 1"
    assert lines[-1] == r"    a: of [B, \*A]."
