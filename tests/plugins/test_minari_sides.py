"""Minari's data sets of spaces that differ in one way from those asked: read by key, or refused by path."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest
from two_sides import SPACES, Pair, drawn, partners

from plugrad.errors import SpaceMismatchError
from plugrad.offline import load_episodes

minari = needs.extra("minari")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:minari")  # no author, no description
LENGTH = 4
CASES = [
    pytest.param(name, how, which, other, id=f"{name}-{how}-{which.split('_')[0]}")
    for name in SPACES
    for how, which, other in partners(name)
]


def stacked(values: list[Any]) -> Any:
    """Steps as Minari's buffers have them: structures of lists."""
    if isinstance(values[0], dict):
        return {key: stacked([each[key] for each in values]) for key in values[0]}
    if isinstance(values[0], tuple):
        return tuple(stacked(list(part)) for part in zip(*values, strict=True))
    return values


def read(asked: Pair, found: Pair, name: str) -> Any:
    """A data set of `found`, whose steps depend on the keys and not on their order, read for `asked`."""
    rng = np.random.default_rng(1)
    observations = [drawn(found[0], rng) for _ in range(LENGTH + 1)]
    actions = [drawn(found[1], rng) for _ in range(LENGTH)]
    buffer = minari.data_collector.EpisodeBuffer(
        observations=stacked(observations),
        actions=stacked(actions),
        rewards=[1.0] * LENGTH,
        terminations=[False] * (LENGTH - 1) + [True],
        truncations=[False] * LENGTH,
    )
    minari.create_dataset_from_buffers(
        f"plugrad/{name}-v0", [buffer], observation_space=found[0], action_space=found[1]
    )
    data = load_episodes(f"minari:plugrad/{name}-v0")
    own = data.read_as(observation_space=asked[0], action_space=asked[1], where="a data set")
    return np.concatenate(
        [np.concatenate([each.observations.ravel(), each.actions.ravel()]) for each in own.episodes]
    )


@pytest.mark.parametrize(("name", "how", "which", "found"), CASES)
def test_parts_of_a_data_set_are_read_by_key_or_refused_by_path(
    name: str, how: str, which: str, found: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    asked = SPACES[name]
    is_alike = how == "permuted" or (
        how == "rebounded"
        and which == "observation_space"
        and asked[0].dtype != np.uint8
        and not isinstance(asked[0], gym.spaces.Discrete)  # another first choice is another choice
    )
    if is_alike:
        np.testing.assert_allclose(read(asked, found, "other"), read(asked, asked, "own"), rtol=0, atol=1e-6)
    else:
        with pytest.raises(SpaceMismatchError, match="a data set"):
            read(asked, found, "other")


def test_there_are_all_spaces_and_ways() -> None:
    assert len(SPACES) == 12
    assert {each.values[1] for each in CASES} == {"permuted", "renamed", "resized", "retyped", "rebounded"}
    assert all(isinstance(each, gym.Space) for pair in SPACES.values() for each in pair)
