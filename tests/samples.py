"""Products of parameters: of each test marked `cross_product` a seeded third runs always, the rest is `long`.

pytestmark = pytest.mark.cross_product             # at least one case for each backend
pytestmark = pytest.mark.cross_product("example")  # at least one case for each example
"""

from collections import defaultdict
from math import ceil
from random import Random

import pytest

PART = 3


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is left out in time for `-m "not long"`."""
    for where, group in _groups(items).items():
        drawn = Random(where).sample(group, ceil(len(group) / PART))  # by the test's name: modes take turns
        for item in group:
            if item not in drawn:
                item.add_marker(pytest.mark.long)


def _groups(items: list[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """The cases of each test that agree in the parameters of which every value is kept."""
    groups = defaultdict(list)
    for item in sorted(items, key=lambda each: each.nodeid):
        mark = item.get_closest_marker("cross_product")
        if mark is not None and item.get_closest_marker("long") is None:
            callspec = getattr(item, "callspec", None)
            ids = callspec.params if callspec else {}
            kept = [str(ids.get(name)) for name in mark.args or ("backend",)]
            groups["-".join([item.nodeid.split("[")[0], *kept])].append(item)
    return groups
