"""mypy --strict passes over core, backends, plugins, scaffolds and strangers' plugins, and notices a misspelt name."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import needs
import pytest

ROOT = Path(__file__).parents[2]
STRANGERS = ("plugrad-reinforce", "plugrad-toy", "plugrad-functional", "plugrad-mdqn", "plugrad-redq")
CHECKED = ("core", "backends", "plugins", *(f"tests/author/{name}" for name in STRANGERS))
MISSPELT = {
    "a part of the learner": (
        "core/plugrad/learner/update/default_hooks.py",
        "learner.registered_optimizers",
    ),
    "the implementation of a backend's hook": (
        "backends/plugrad_torch/optimizers.py",
        "learner.is_guarded",
    ),
    "a hook of an algorithm": ("plugins/plugrad_dqn/plugin.py", "learner.coefficients"),
    "a loss": ("plugins/plugrad_ppo/loss.py", "learner.register_metric"),
    "a listener": ("plugins/plugrad_listeners/entropy_bonus.py", "learner.register_metric"),
    "a scaffold": ("core/plugrad/cli/templates/algorithm/plugrad_template.py", "learner.register_metrics"),
    "a stranger's algorithm": (
        "tests/author/plugrad-reinforce/plugrad_reinforce.py",
        "learner.compute_values_of_episodes",
    ),
    "a stranger's backend": ("tests/author/plugrad-toy/plugrad_toy/backend.py", "learner.get_param_ref"),
}
"""`{what: (file, what is misspelt in it)}`."""


@pytest.fixture(scope="module")
def mypy() -> Iterator[Any]:
    """mypy's `run(arguments) -> (report, errors, exit status)`, where its settings are."""
    needs.extra("mypy")
    from mypy import api

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        yield api.run


def test_types_are_right_everywhere(mypy):
    report, errors, status = mypy([*CHECKED])
    assert status == 0, report + errors


@pytest.fixture(scope="module")
def report_on_misspelt(mypy, tmp_path_factory) -> str:
    """What mypy says when each of the files has a misspelt name."""
    folder, arguments = tmp_path_factory.mktemp("misspelt"), []
    for number, (file, name) in enumerate(MISSPELT.values()):
        source = (ROOT / file).read_text()
        assert f"{name}(" in source or f"{name}." in source or f"{name}[" in source or f"{name}\n" in source
        shadow = folder / f"{number}.py"
        shadow.write_text(re.sub(rf"{re.escape(name)}\b", f"{name}_", source))
        arguments += ["--shadow-file", file, str(shadow)]
    report, errors, status = mypy([*arguments, *(file for file, _ in MISSPELT.values())])
    assert status == 1, report + errors
    return report


@pytest.mark.parametrize("what", MISSPELT)
def test_a_misspelt_attribute_of_the_learner_is_an_error(report_on_misspelt, what):
    file, name = MISSPELT[what]
    attribute = name.removeprefix("learner.")
    expected = rf'^{re.escape(file)}:\d+: error: "\w+" has no attribute "{attribute}_"'
    assert re.search(expected, report_on_misspelt, re.M), report_on_misspelt
