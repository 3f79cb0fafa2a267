"""Which cases of which tests run always, and which are `long`.

A test that takes the fixture `backend` runs on each backend under test, in all its cases. Exceptions, for time:

- `sampled.txt` names tests that cost too much for that, and the backends where they do: there a seeded eighth of the
  cases runs, at least one. The word `drawn` in place of backends: each case runs on one backend, which its name draws.
- A large product of parameters is marked `cross_product`: on each backend a seeded eighth of the cases runs, at least
  one. Of one that is `drawn` it is at least one of torch and tf2, and on jax fewer.
- `costly` names backends on which a test does not run.
- In the folders of `DRAWN` all tests are `drawn`.

pytestmark = pytest.mark.cross_product             # at least one case on each backend
pytestmark = pytest.mark.cross_product("example")  # at least one case for each value of the parameter
pytestmark = pytest.mark.cross_product(part=16)    # a sixteenth
@pytest.mark.costly("jax")                         # on jax it is `long`, where others are under test

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

HERE = Path(__file__).parent
PART = 8
WEIGHTS = {"torch": 4, "tf2": 3, "jax": 1}
"""How often a backend is drawn."""
SAMPLED, SAMPLED_PART = "jax", 6
"""A backend on which not every drawn test has a case that runs always; its part of a cross product is smaller."""
DRAWN = ("group", "author", "core", "package", "portability")
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
    for item in items:
        if _is_costly(item):
            item.add_marker(pytest.mark.long)
    for (where, part), group in _groups(items).items():
        drawn = _draw(group, ceil(len(group) / part), where)  # by the test's name: modes take turns
        for item in group:
            if item not in drawn:
                item.add_marker(pytest.mark.long)
    drawn = _draw_backends(items)
    for item in items:
        if _is_for_one_backend(item) and item not in drawn:
            item.add_marker(pytest.mark.long)


def _is_costly(item: pytest.Item) -> bool:
    """It takes long on its backend."""
    mark, ids = item.get_closest_marker("costly"), getattr(getattr(item, "callspec", None), "params", {})
    return mark is not None and ids.get("backend") in mark.args and len(backends_under_test()) > 1


def _is_for_one_backend(item: pytest.Item) -> bool:
    """It is drawn, and neither smoke nor a cross product nor `long` in any case."""
    marks = any(item.get_closest_marker(name) for name in ("smoke", "cross_product", "long"))
    return _backend(item) in backends_under_test() and not marks and _where(item) == ["drawn"]


def _backend(item: pytest.Item) -> str | None:
    backend: str | None = getattr(getattr(item, "callspec", None), "params", {}).get("backend")
    return backend


def _where(item: pytest.Item) -> list[str]:
    """Where it costs too much for all its cases: backends, or "drawn"."""
    path, function = item.path.relative_to(HERE), item.nodeid.partition("[")[0].partition("::")[2]
    return ["drawn"] if path.parts[0] in DRAWN else COSTS.get(f"{path.as_posix()}::{function}", [])


def _draw_backends(items: list[pytest.Item]) -> set[pytest.Item]:
    """Of each case the item of one backend."""
    cases = defaultdict(list)
    for item in sorted(filter(_is_for_one_backend, items), key=lambda each: each.nodeid):
        others = [value for value in _values(item) if value not in WEIGHTS]
        cases["-".join([item.nodeid.partition("[")[0], *others])].append(item)
    drawn = set()
    for case, group in cases.items():
        weights = [WEIGHTS.get(item.callspec.params["backend"], 1) for item in group]
        drawn |= {*Random(case).choices(group, weights)}
    return drawn


def _has_its_turn(item: pytest.Item) -> bool:
    number, turns = map(int, TURN.split("/"))
    return crc32(item.nodeid.partition("[")[0].rpartition("::")[2].encode()) % turns == number - 1


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


def _groups(items: list[pytest.Item]) -> dict[tuple[str, int], list[pytest.Item]]:
    """Cases of which a part runs: those of a test that agree in what is kept of their parameters, by their name."""
    groups = defaultdict(list)
    several = len(backends_under_test()) > 1
    for item in sorted(items, key=lambda each: each.nodeid):
        mark, where, backend = item.get_closest_marker("cross_product"), _where(item), _backend(item)
        is_sampled = mark or (several and backend in where)
        if item.get_closest_marker("long") or item.get_closest_marker("smoke") or not is_sampled:
            continue
        part, names = (mark.kwargs.get("part", PART), mark.args) if mark else (PART, ())
        if where == ["drawn"] and backend == SAMPLED and several:
            groups[f"{item.nodeid.partition('::')[0]}-{SAMPLED}", part * SAMPLED_PART].append(item)
            continue
        ids = getattr(getattr(item, "callspec", None), "params", {})
        if backend is not None and where != ["drawn"]:
            names = tuple(dict.fromkeys([*names, "backend"]))
        groups["-".join([item.nodeid.split("[")[0], *(str(ids.get(name)) for name in names)]), part].append(
            item
        )
    return groups
