"""The pages under docs/ say what the code says, and their links and code work."""

import ast
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plugrad import Learner
from plugrad.checkpoint import Block, save_checkpoint
from plugrad.contract import since_version
from plugrad.hooks.manager import hook_methods, implementations, specifications
from plugrad.learner.learner import CORE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/hooks.md").read_text()
SPECS = specifications()
WITH_DEFAULT = {name for plugin in CORE for name in implementations(plugin)}
LINKING = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "benchmarks/README.md")
LINKED_PAGES = [ROOT / name for name in LINKING] + sorted((ROOT / "docs").rglob("*.md"))


def arguments(hook: str) -> list[str]:
    return list(inspect.signature(SPECS[hook]).parameters)[1:]


def has_one_answer(hook: str) -> bool:
    return bool(SPECS[hook].plugrad_spec["firstresult"])


def section(hook: str) -> str:
    """What the page says under the hook's heading."""
    return re.split(r"^#+ ", PAGE.split(f"### `{hook}(")[1], flags=re.MULTILINE)[0]


def docstring_example(hook: str) -> str:
    """The code at the end of a specification's docstring."""
    lines = inspect.cleandoc(SPECS[hook].__doc__ or "").splitlines()
    starts = [number for number, line in enumerate(lines) if re.match(r"\s*(@hookimpl|class )", line)]
    assert starts, f"the docstring of {hook} has no example"
    return textwrap.dedent("\n".join(lines[starts[0] :])).strip()


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)


def test_headings_are_the_hooks_with_their_signatures_in_order():
    expected = [f"{name}({', '.join(arguments(name))})" for name in SPECS]
    assert re.findall(r"^### `(.*)`$", PAGE, flags=re.MULTILINE) == expected


@pytest.mark.parametrize("hook", SPECS)
def test_page_says_what_the_code_does(hook):
    def word(yes: bool) -> str:
        return "yes" if yes else "no"

    wrappable = not has_one_answer(hook) or hook in hook_methods(Learner).values()
    traced = re.search(r"\btraced\b", SPECS[hook].__doc__ or "", flags=re.IGNORECASE) is not None
    facts = (
        f"{'One answer' if has_one_answer(hook) else 'All are called'}. "
        f"Core default: {word(hook in WITH_DEFAULT)}. Traced: {word(traced)}. Can be wrapped: {word(wrappable)}."
    )
    version = since_version(SPECS[hook])
    facts += f" Since contract version {version}." if version > 1 else ""
    assert facts in section(hook).splitlines()


@pytest.mark.parametrize("hook", SPECS)
def test_page_has_the_example_of_the_docstring(hook):
    assert blocks(section(hook)) == [docstring_example(hook) + "\n"]


@pytest.mark.parametrize("hook", SPECS)
def test_docstring_example_implements_its_hook(hook):
    functions = [
        each for each in ast.parse(docstring_example(hook)).body if isinstance(each, ast.FunctionDef)
    ]
    assert [each.name for each in functions] == [hook]
    (function,) = functions
    given = function.args
    kinds = [given.posonlyargs, given.kwonlyargs, given.vararg, given.kwarg, given.defaults]
    assert not any(kinds)  # the contract refuses all of them
    taken = [each.arg for each in given.args]
    assert taken == [each for each in arguments(hook) if each in taken]

    (mark,) = function.decorator_list
    assert ast.unparse(mark) in ("hookimpl", "hookimpl(wrapper=True)")
    yields = [each for each in ast.walk(function) if isinstance(each, ast.Yield)]
    assert len(yields) == ("wrapper" in ast.unparse(mark))


@pytest.mark.parametrize("path", LINKED_PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_point_to_files(path):
    prose = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s#]+)[^)]*\)", prose)
    local = [target for target in targets if not re.match(r"[a-z]+:", target)]
    assert [target for target in local if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("path", [*LINKED_PAGES, *ROOT.glob("examples/*.py")], ids=lambda path: path.name)
def test_an_extra_is_installed_by_one_command_in_any_folder(path):
    """`plugrad[plot]`, as errors say: pip takes the installed plugrad. Only its first install is that of the clone."""
    of_the_clone = [line for line in path.read_text().splitlines() if re.search(r'"\.\[(?!test\])', line)]
    assert [
        line for line in of_the_clone if "-c constraints.txt" not in line and path.stem != "CONTRIBUTING"
    ] == []


def shown(page: str) -> list[tuple[str, str]]:
    """`(file, text)` of every block that a page shows under a file's name."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


STRANGERS = {
    "write-an-algorithm.md": "plugrad-reinforce",
    "tutorial-a-paper.md": "plugrad-mdqn",
    "write-a-backend.md": "plugrad-toy",
    "write-a-functional-backend.md": "plugrad-functional",
    "write-a-collective.md": "plugrad-folder",
}


@pytest.mark.parametrize("page", STRANGERS)
def test_what_a_page_shows_of_a_strangers_file_stands_in_it(page):
    folder = ROOT / "tests/author" / STRANGERS[page]
    blocks_of = shown(page)
    assert {file for file, _ in blocks_of} >= {"pyproject.toml", "tests/conftest.py"}
    for file, text in blocks_of:
        assert text in (folder / file).read_text(), f"{page}: this is not in {file}:\n{text}"


def test_a_whole_algorithm_is_shown_in_at_most_eighty_lines_of_code():
    folder = ROOT / "tests/author/plugrad-reinforce"
    files = {
        str(each.relative_to(folder)): each.read_text() for each in folder.rglob("*.*") if each.is_file()
    }
    sources = {name: text for name, text in files.items() if name.endswith((".py", ".toml"))}
    assert dict(shown("write-an-algorithm.md")) == sources
    assert sum(bool(line.strip()) for text in sources.values() for line in text.splitlines()) <= 80


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_code_blocks_compile(path):
    for number, block in enumerate(blocks(path.read_text()), start=1):
        assert compile(block, f"{path.name}, block {number}", "exec")


def test_the_reader_on_the_format_page_reads_a_checkpoint(tmp_path):
    state = {
        "module/$weights": {"$w": np.arange(6.0, dtype=np.float32).reshape(2, 3).T, "": np.array(3)},
        "plain": [None, True, 1, 1.0, -0.0, 2**80, -(2**127), float("inf"), float("-inf"), "\u00e9$", {}],
        "$array": 1,
    }
    rows = [{"z": np.arange(n), "$a": np.full((n, 2), n, np.float32)} for n in (1, 2)]
    state["rows"] = {str(n): Block(lambda each=each: each) for n, each in enumerate(rows)}
    for number in range(1, 12):  # the newest is save-11, the last in the alphabet is save-9
        save_checkpoint(
            tmp_path, state | {"number": number}, metadata={"$float": "inf", "n": number}, keep=11
        )
    namespace: dict[str, Any] = {}
    (code,) = blocks((ROOT / "docs/checkpoint-format.md").read_text())
    exec(code, namespace)
    metadata, found = namespace["read"](tmp_path)
    assert metadata == {"$float": "inf", "n": 11}
    expected_rows = {str(n): each for n, each in enumerate(rows)}
    np.testing.assert_equal(found, state | {"number": 11, "rows": expected_rows})
    assert [type(each) for each in found["plain"]] == [type(each) for each in state["plain"]]
    assert found["module/$weights"]["$w"].dtype == np.float32

    (tmp_path / "save-11/data.json").write_bytes(b"{}\n")
    with pytest.raises(ValueError, match="damaged"):
        namespace["read"](tmp_path)


TASKS = (
    *(
        "determinism",
        "environments",
        "from-cleanrl",
        "from-stable-baselines3",
        "images",
        "logging",
        "many-learners",
    ),
    *("masks", "multi-agent", "normalization", "offline", "recurrence", "replay", "tune", "use-a-policy"),
    *("your-model", "your-simulator"),
    *(f"algorithms/{path.stem}" for path in sorted((ROOT / "docs/algorithms").glob("*.md"))),
)


@pytest.mark.parametrize("page", TASKS)
def test_a_page_of_a_task_begins_with_a_short_program(page):
    """`tests/docs/test_docs_code.py` runs it."""
    text = (ROOT / f"docs/{page}.md").read_text()
    before, program = text.split("```python\n", 1)
    assert "\n## " not in before
    assert len(before.splitlines()) <= 12
    assert len(program.split("```")[0].splitlines()) <= 30


def test_the_map_names_every_page():
    text = (ROOT / "docs/index.md").read_text()
    table = text.partition("```{toctree}")[0]
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages == set(re.findall(r"\]\(([\w-]+)\.md\)", table)) | {"models"}
