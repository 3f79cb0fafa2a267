"""A framework's own function in a loss is named by the strict backend."""

import bugs  # noqa: F401
import needs
import pytest
from seeded import BUGS
from test_seeded_bugs import assert_is_named

FOREIGN = {each.needs: each for each in BUGS.values() if each.needs}


@pytest.mark.parametrize("framework", FOREIGN)
def test_a_function_of_a_framework_is_named_with_its_line(framework: str) -> None:
    needs.backend(framework)
    assert_is_named(FOREIGN[framework])
