"""Weights are loaded into modules of the same spaces only: parts in another order would read each other's numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Space

from plugrad.errors import SpaceMismatchError
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad_ppo import PPOConfig

BOX = Box(-1, 1, (1,), np.float32)
SEEN = Dict([("speed", BOX), ("noise", BOX)])
OTHERS: dict[str, tuple[Space[Any], str]] = {
    "permuted": (Dict([("noise", BOX), ("speed", BOX)]), "another order"),
    "renamed": (Dict([("other", BOX), ("noise", BOX)]), "lacks 'other'"),
    "retyped": (Dict([("speed", Box(0, 255, (1,), np.uint8)), ("noise", BOX)]), r"\['speed'\]: uint8"),
}


def learner(space: Space[Any]) -> Any:
    spec = RLModuleSpec(
        observation_space=space, action_space=Discrete(2), model_config={"fcnet_hiddens": [4]}
    )
    specs = MultiRLModuleSpec(rl_module_specs={"a": spec})
    return PPOConfig().framework("numpy").rl_module(rl_module_spec=specs).debugging(seed=0).build_learner()


@pytest.mark.parametrize(("other", "said"), OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("component", [None, "rl_module", "rl_module/a"])
def test_weights_of_a_module_of_other_spaces_are_refused_and_change_nothing(
    tmp_path: Path, other: Space[Any], said: str, component: str | None
) -> None:
    path = learner(SEEN).save_to_path(tmp_path / "saved")
    reader = learner(other)
    before = reader.get_weights()["a"]
    with pytest.raises(SpaceMismatchError, match=said):
        reader.restore_from_path(path, component=component)
    for name, values in reader.get_weights()["a"].items():
        np.testing.assert_array_equal(values, before[name])


def test_weights_of_a_module_of_other_bounds_are_loaded(tmp_path: Path) -> None:
    path = learner(SEEN).save_to_path(tmp_path / "saved")
    reader = learner(Dict([("speed", Box(-5, 5, (1,), np.float64)), ("noise", BOX)]))
    reader.restore_from_path(path, component="rl_module")
    np.testing.assert_array_equal(
        reader.get_weights()["a"]["pi.0.weight"], learner(SEEN).get_weights()["a"]["pi.0.weight"]
    )
