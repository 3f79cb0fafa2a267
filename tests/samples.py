"""Products of parameters: of each test marked `cross_product` a seeded eighth runs always, the rest is `long`.

pytestmark = pytest.mark.cross_product      # at least one case of all backends
pytestmark = pytest.mark.cross_product("example")  # at least one case for each value of the parameter
pytestmark = pytest.mark.cross_product(part=16)    # a sixteenth
@pytest.mark.costly("jax")                         # on jax it is `long`, where others are under test

Where several backends are under test, a case of another test runs always on one of them, drawn by its name, and is
`long` on the rest. A smoke test runs always on all backends.

Where PLUGRAD_TEST_TURN is "1/2", only the tests of the first half run, by their names: Pythons may take turns.
"""

import os
from collections import Counter, defaultdict
from math import ceil
from random import Random
from zlib import crc32

import pytest
from needs import backends_under_test

PART = 8
WEIGHTS = {"torch": 4, "tf2": 3, "jax": 1}
"""How often a backend is drawn."""
SAMPLED, SAMPLED_PART = "jax", 6
"""A backend on which not every test has a case that runs always; its part of a cross product is smaller."""
TURN = os.environ.get("PLUGRAD_TEST_TURN", "1/1")


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
        if _is_for_backends(item) and item not in drawn:
            item.add_marker(pytest.mark.long)


def _is_costly(item: pytest.Item) -> bool:
    """It takes long on its backend."""
    mark, ids = item.get_closest_marker("costly"), getattr(getattr(item, "callspec", None), "params", {})
    return mark is not None and ids.get("backend") in mark.args and len(backends_under_test()) > 1


def _is_for_backends(item: pytest.Item) -> bool:
    """It is for each of the backends under test, and neither smoke nor a cross product nor `long` in any case."""
    ids = getattr(getattr(item, "callspec", None), "params", {})
    marks = any(item.get_closest_marker(name) for name in ("smoke", "cross_product", "long"))
    return ids.get("backend") in backends_under_test() and not marks


def _draw_backends(items: list[pytest.Item]) -> set[pytest.Item]:
    """Of each case the item of one backend."""
    cases = defaultdict(list)
    for item in sorted(filter(_is_for_backends, items), key=lambda each: each.nodeid):
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
    """The cases of each test that agree in the parameters of which every value is kept, by their name and part."""
    groups = defaultdict(list)
    for item in sorted(items, key=lambda each: each.nodeid):
        mark = item.get_closest_marker("cross_product")
        if mark is not None and item.get_closest_marker("long") is None:
            callspec = getattr(item, "callspec", None)
            ids = callspec.params if callspec else {}
            part = mark.kwargs.get("part", PART)
            if ids.get("backend") == SAMPLED and len(backends_under_test()) > 1:
                groups[f"{item.nodeid.partition('::')[0]}-{SAMPLED}", part * SAMPLED_PART].append(item)
            else:
                kept = [str(ids.get(name)) for name in mark.args]
                groups["-".join([item.nodeid.split("[")[0], *kept]), part].append(item)
    return groups
