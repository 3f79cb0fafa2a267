"""That it is found and hears what it should. A listener needs no framework: plugrad's numpy reference will do."""

import pytest

from plugrad.hooks.registry import load_listeners
from plugrad.testing.tiny_learners import tiny_batch, tiny_learner
from plugrad_template import Template


def test_its_name_loads_it_and_its_hooks_fit() -> None:
    (plugin,) = load_listeners(("template",))
    assert isinstance(plugin.implementation, Template)


def test_every_update_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    learner = tiny_learner("numpy", plugins=[Template("policy_loss")])
    with caplog.at_level("INFO"):
        results = [learner.update(tiny_batch()) for _ in range(2)]
    losses = [each["default_policy"]["policy_loss"] for each in results]
    said = [each.message for each in caplog.records if each.name == "plugrad_template"]
    assert said == [f"policy_loss of default_policy: {loss:.6g}" for loss in losses]
