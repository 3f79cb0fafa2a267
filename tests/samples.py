"""Which cases of which tests run always; the others are `long`.

A test that takes the fixture `backend` runs on each backend under test, in all its cases. Exceptions, for time:

- `sampled.txt` names tests that cost too much for that, and the backends where they do: there a seeded eighth of the
  cases runs, at least one.
- A large product of parameters is marked `cross_product`: on each backend a seeded eighth of the cases runs, at least
  one.
- The tests of the folders of `SAMPLED` with a backend are sampled likewise: each case starts processes.

pytestmark = pytest.mark.cross_product             # at least one case on each backend
pytestmark = pytest.mark.cross_product("example")  # at least one case for each value of the parameter
pytestmark = pytest.mark.cross_product(part=16)    # a sixteenth

A smoke test runs always on all backends.

Where PLUGRAD_TEST_TURN is "1/2", only the tests of the first half run, by their names: Pythons may take turns.
"""

import os
from collections import Counter, defaultdict
from math import ceil
from pathlib import Path
from random import Random
from zlib import crc32

import pytest
from needs import backends_under_test
from skips import NOT_TAKEN

HERE = Path(__file__).parent
PART = 8
SAMPLED = ("group", "author")
TURN = os.environ.get("PLUGRAD_TEST_TURN", "1/1")


def _read_costs() -> dict[str, list[str]]:
    """`{function: backends}` of `sampled.txt`."""
    lines = [line.partition("#")[0].split() for line in (HERE / "sampled.txt").read_text().splitlines()]
    return {function: backends for function, *backends in filter(None, lines)}


COSTS = _read_costs()
"""Tests, such as `backends/test_walk.py::test_a`, and the backends on which all their cases cost too much."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is left out in time for `-m "not long"`, and leave out what has another turn."""
    kept = [item for item in items if _has_its_turn(item)]
    config.hook.pytest_deselected(items=[item for item in items if not _has_its_turn(item)])
    items[:] = kept
    for (where, part), group in _groups(items).items():
        drawn = _draw(group, ceil(len(group) / part), where)  # by the test's name: modes take turns
        for item in group:
            if item not in drawn:
                item.add_marker(pytest.mark.long)


def _has_its_turn(item: pytest.Item) -> bool:
    number, turns = map(int, TURN.split("/"))
    return crc32(item.nodeid.partition("[")[0].rpartition("::")[2].encode()) % turns == number - 1


def _groups(items: list[pytest.Item]) -> dict[tuple[str, int], list[pytest.Item]]:
    """Cases of which a part runs: those of a test that agree in what is kept of their parameters, by their name."""
    groups = defaultdict(list)
    for item in sorted(items, key=lambda each: each.nodeid):
        mark, ids = (
            item.get_closest_marker("cross_product"),
            getattr(getattr(item, "callspec", None), "params", {}),
        )
        if any(map(item.get_closest_marker, ("long", "smoke"))) or not (mark or _is_sampled(item)):
            continue
        if ids.get("tiny_task") == NOT_TAKEN.get(ids.get("algorithm"), "none"):
            continue  # it skips itself: drawn, it would show nothing
        part, names = (mark.kwargs.get("part", PART), mark.args) if mark else (PART, ())
        if "backend" in ids:
            names = tuple(dict.fromkeys([*names, "backend"]))
        where = "-".join([item.nodeid.split("[")[0], *(str(ids.get(name)) for name in names)])
        groups[where, part].append(item)
    return groups


def _is_sampled(item: pytest.Item) -> bool:
    """It is too costly on its backend, where others are under test, too."""
    backend = getattr(getattr(item, "callspec", None), "params", {}).get("backend")
    if backend is None or len(backends_under_test()) == 1:
        return False
    path, function = item.path.relative_to(HERE), item.nodeid.partition("[")[0].partition("::")[2]
    return path.parts[0] in SAMPLED or backend in COSTS.get(f"{path.as_posix()}::{function}", [])


def _draw(group: list[pytest.Item], number: int, seed: str) -> list[pytest.Item]:
    """Cases at random, each the one whose values have been drawn least so far: few cases have most of the values."""
    rest, drawn = Random(seed).sample(group, len(group)), []
    seen: Counter[str] = Counter()
    while len(drawn) < number:
        least = min(rest, key=lambda item: sum(seen[value] for value in _values(item)))
        rest.remove(least)
        drawn.append(least)
        seen.update(_values(least))
    return drawn


def _values(item: pytest.Item) -> list[str]:
    """The parts of a case's id."""
    return item.nodeid.partition("[")[2].rstrip("]").split("-")
