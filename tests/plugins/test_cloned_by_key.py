"""Behaviour cloning of recordings whose parts have another order learns the weights of those in its own order."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest

from plugrad import DEFAULT_MODULE_ID, SingleAgentEpisode
from plugrad.offline import save_episodes
from plugrad_bc import BCConfig

NUMBERS = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
SEEN = gym.spaces.Dict([("speed", NUMBERS), ("noise", gym.spaces.Box(-1.0, 1.0, (1,), np.float32))])
ACTED = gym.spaces.Dict([("grip", gym.spaces.Discrete(3)), ("arm", NUMBERS)])
LENGTHS = (5, 7)


def steps() -> list[dict[str, dict[str, Any]]]:
    """Episodes by key: observations of every step and the last one, actions that depend on them."""
    rng, episodes = np.random.default_rng(2), []
    for length in LENGTHS:
        speed = rng.uniform(-1.0, 1.0, (length + 1, 2)).astype(np.float32)
        noise = rng.uniform(-1.0, 1.0, (length + 1, 1)).astype(np.float32)
        grip = (speed[:-1, 0] > 0).astype(np.int64) + (speed[:-1, 1] > 0)
        episodes.append(
            {"seen": {"speed": speed, "noise": noise}, "acted": {"grip": grip, "arm": -speed[:-1]}}
        )
    return episodes


def recorded(path: Path, *, is_permuted: bool) -> str:
    """The episodes as an own recording, with the keys in the order of the environment or in the other one."""
    spaces = [
        gym.spaces.Dict(list(each.spaces.items())[:: -1 if is_permuted else 1]) for each in (SEEN, ACTED)
    ]
    episodes = []
    for each in steps():
        seen, acted = (
            np.concatenate([parts[key].reshape(len(parts[key]), -1) for key in space], 1)
            for space, parts in zip(spaces, each.values(), strict=True)
        )
        episodes.append(
            SingleAgentEpisode(
                observations=seen.astype(np.float32),
                actions=acted.astype(np.float32),
                rewards=np.ones(len(acted)),
                terminated=True,
            )
        )
    save_episodes(path, episodes, observation_space=spaces[0], action_space=spaces[1])
    return str(path)


def cloned(backend: str, source: str) -> dict[str, np.ndarray]:
    """The weights after two iterations."""
    config = BCConfig().framework(backend, compile="none").offline_data(input_=[source])
    config = config.environment(observation_space=SEEN, action_space=ACTED).debugging(seed=3)
    config = config.rl_module(model_config={"fcnet_hiddens": [4]})
    config = config.training(train_batch_size=8, minibatch_size=None, lr=0.01)
    algorithm = config.build_algo()
    try:
        first = algorithm.learner_group.get_weights()[DEFAULT_MODULE_ID]
        for _ in range(2):
            algorithm.train()
        weights = algorithm.learner_group.get_weights()[DEFAULT_MODULE_ID]
        assert any(np.abs(weights[name] - first[name]).max() > 1e-3 for name in first)
        return weights
    finally:
        algorithm.stop()


def assert_equal_weights(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-6, err_msg=name)


def test_a_recording_with_its_keys_in_another_order_is_cloned_as_one_in_the_environments_order(
    backend: str, tmp_path: Path
) -> None:
    own = cloned(backend, recorded(tmp_path / "own", is_permuted=False))
    assert_equal_weights(cloned(backend, recorded(tmp_path / "other", is_permuted=True)), own)


@pytest.mark.filterwarnings("ignore::UserWarning:minari")  # no author, no description
def test_a_data_set_of_minari_whose_keys_are_sorted_is_cloned_as_a_recording_in_the_environments_order(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = needs.extra("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    buffers = []
    for each in steps():
        length = len(each["acted"]["grip"])
        ends = [False] * (length - 1)
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                observations={key: list(values) for key, values in sorted(each["seen"].items())},
                actions={key: list(values) for key, values in sorted(each["acted"].items())},
                rewards=[1.0] * length,
                terminations=[*ends, True],
                truncations=[*ends, False],
            )
        )
    spaces = [gym.spaces.Dict(sorted(each.spaces.items())) for each in (SEEN, ACTED)]
    assert [list(each) for each in spaces] == [["noise", "speed"], ["arm", "grip"]]
    minari.create_dataset_from_buffers(
        "plugrad/cloned-v0", buffers, observation_space=spaces[0], action_space=spaces[1]
    )
    own = cloned(backend, recorded(tmp_path / "own", is_permuted=False))
    assert_equal_weights(cloned(backend, "minari:plugrad/cloned-v0"), own)
