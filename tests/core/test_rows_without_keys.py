"""Flat rows name no keys: they are read as those of a Dict only where an older recording or checkpoint has them."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from test_two_sides import columns_of, evaluated, ppo, recorded, saved
from two_sides import SPACES, Mirror, Pair, changed, environment

from plugrad.algorithm import Algorithm
from plugrad.errors import SpaceMismatchError
from plugrad.observations import row_space

DICT = SPACES["dict"]
FLAT: Pair = row_space(DICT[0]), DICT[1]


class Flattened(gym.wrappers.FlattenObservation[Any, Any, Any]):
    """The environment of `DICT`, with its keys in another order, as rows."""

    def __init__(self) -> None:
        other: Any = changed(DICT[0], "permuted")
        super().__init__(environment((other, DICT[1]))())


def test_recorded_dicts_are_not_read_for_an_environment_of_flat_rows(tmp_path: Path) -> None:
    path = recorded(DICT, tmp_path / "recording")
    with pytest.raises(SpaceMismatchError, match=r"the whole: float .* asked, Dict"):
        columns_of(FLAT, path)


def test_flat_recordings_are_read_for_the_dict_that_they_are_rows_of(tmp_path: Path) -> None:
    flat, keyed = recorded(FLAT, tmp_path / "flat"), recorded(DICT, tmp_path / "keyed")
    assert columns_of(DICT, flat).shape == columns_of(DICT, keyed).shape


@pytest.mark.parametrize("bounds", [2.0, np.inf])
def test_flat_recordings_of_other_bounds_are_not_rows_of_a_dict(bounds: float, tmp_path: Path) -> None:
    other = gym.spaces.Box(-bounds, bounds, FLAT[0].shape, np.float32)
    path = recorded((other, DICT[1]), tmp_path / "recording")
    if np.isfinite(bounds):
        with pytest.raises(SpaceMismatchError, match="the whole"):
            columns_of(DICT, path)
    else:
        assert columns_of(DICT, path).size  # a recording with normalize_observations names no bounds


def test_a_policy_of_dicts_does_not_act_on_flat_rows(tmp_path: Path) -> None:
    path = saved(DICT, tmp_path)
    with pytest.raises(SpaceMismatchError, match="the whole"):
        Algorithm.from_checkpoint(path, env=Flattened)


@pytest.mark.parametrize("found", [Flattened, environment(DICT)], ids=["flattened", "dict"])
def test_settings_of_a_dict_refuse_flat_rows(found: type[Mirror]) -> None:
    config = ppo(DICT).environment(found, observation_space=DICT[0], action_space=DICT[1])
    if found is Flattened:
        with pytest.raises(SpaceMismatchError, match="the whole"):
            config.build_algo()
    else:
        assert evaluated(config.build_algo()) is not None


def test_a_policy_of_an_environment_of_flat_rows_does_not_act_on_dicts(tmp_path: Path) -> None:
    path = saved(FLAT, tmp_path)
    with pytest.raises(SpaceMismatchError, match="the whole"):
        Algorithm.from_checkpoint(path, env=environment(DICT))
