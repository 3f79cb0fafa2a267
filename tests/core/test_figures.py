"""The figures on our pages are those of benchmarks/results.json, and no page has a number that nothing vouches for."""

import importlib.util
import re
import sys
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path
from types import ModuleType

import gymnasium as gym
import pytest

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    """A script of benchmarks/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"benchmarks/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


record = script("record")
quotes = script("quotes")
RESULTS = record.read()
PAIRS = [(page, quote) for page, all_of_it in quotes.QUOTES.items() for quote in all_of_it]


def page_of(name: str) -> str:
    return (ROOT / name).read_text()


@pytest.mark.parametrize(("page", "quote"), PAIRS)
def test_a_page_quotes_exactly_what_was_measured(page: str, quote: str) -> None:
    found = quotes.places(quote, page_of(page))
    assert len(found) == 1, f"{page} says this {len(found)} times: {quote}"
    wanted = quotes.numbers_in(quotes.rendered(quote, RESULTS), quote)
    assert wanted
    assert list(found[0].groups()) == wanted, "write the pages anew: python benchmarks/quotes.py"


def python_required() -> str:
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser["options"]["python_requires"].removeprefix(">=")


def cartpole_goal() -> float | None:
    return gym.spec("CartPole-v1").reward_threshold


FACTS: dict[str, tuple[str, Callable[[], object]]] = {
    "Python 3.11 or later": ("3.11", python_required),
    "the mean return of the last 20 episodes is\n475": ("475.0", cartpole_goal),
}
"""`{words: (what they say, where it comes from)}`: numbers of the README that nobody measures."""


@pytest.mark.parametrize("words", FACTS)
def test_a_number_that_is_not_measured_is_what_the_code_says(words: str) -> None:
    said, source = FACTS[words]
    assert page_of("README.md").count(words) == 1
    assert str(source()) == said


def unvouched(page: str, vouched: list[str]) -> list[str]:
    """Numbers of a page outside code, names, links and the places that are vouched for."""
    zoo = r"<!-- made by `python benchmarks/zoo.py --page` -->.*?<!-- end of results -->"  # test_zoo.py
    for pattern in (zoo, r"```.*?```", r"`[^`\n]*`", r"<!--.*?-->", r"\]\([^)]*\)", "TensorFlow 2"):
        page = re.sub(pattern, " ", page, flags=re.DOTALL)
    for words in vouched:
        page = page.replace(words, " ")
    return re.findall(r"(?<![\w.-])\d[\w.,]*", page)


def without_quotes(name: str, page: str) -> str:
    for quote in quotes.QUOTES[name]:
        for found in quotes.places(quote, page):
            page = page.replace(found[0], " ")
    return page


def test_the_readme_has_no_number_that_nothing_vouches_for() -> None:
    assert unvouched(without_quotes("README.md", page_of("README.md")), list(FACTS)) == []


@pytest.mark.parametrize("line", ["| plugrad, jax | 12.3 | |", "It is 7 times faster.", "some 40 % less"])
def test_a_number_of_somebodys_own_is_found(line: str) -> None:
    page = without_quotes("README.md", page_of("README.md") + f"\n{line}\n")
    assert len(unvouched(page, list(FACTS))) == 1


def test_a_figure_that_is_one_digit_off_is_found() -> None:
    page = page_of("README.md")
    quote = next(quote for name, quote in PAIRS if name == "README.md" and "one XLA program" in quote)
    (found,) = quotes.places(quote, page)
    ms = found[1]
    spoiled = page.replace(found[0], found[0].replace(ms, f"{float(ms) + 0.1:.1f}"))
    (place,) = quotes.places(quote, spoiled)
    assert list(place.groups()) != quotes.numbers_in(quotes.rendered(quote, RESULTS), quote)
    assert quotes.rewritten(spoiled, quotes.QUOTES["README.md"], RESULTS) == page


@pytest.mark.parametrize("section", RESULTS)
def test_a_section_says_on_what_it_was_measured(section: str) -> None:
    found = RESULTS[section]
    assert set(found) == {"date", "commit", "machine", "command", "versions", "figures"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["date"])
    assert re.fullmatch(r"[0-9a-f]{7}", found["commit"]), "measured with changes that no commit has"
    assert {"python", "plugrad"} <= set(found["versions"])
    assert all(isinstance(each, int | float) for each in found["figures"].values())
    assert "/" not in found["command"]


def test_a_script_saves_its_section_and_leaves_the_others(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    record.save(file, "one", {"ms": 1.23456789, "steps": 320})
    record.save(file, "other", {"ms": 2.0})
    record.save(file, "one", {"ms": 3.0})
    assert {name: each["figures"] for name, each in record.read(file).items()} == {
        "one": {"ms": 3.0},
        "other": {"ms": 2.0},
    }
    record.save(None, "nowhere", {"ms": 1.0})
