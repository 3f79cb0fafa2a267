"""Minari's data sets as episodes: real ones, made here with Minari itself."""

import gymnasium as gym
import needs
import numpy as np
import pytest

from plugrad.errors import BatchError, ConfigError, SpaceMismatchError
from plugrad.offline import load_episodes

minari = needs.extra("minari")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:minari")  # no author, no description


@pytest.fixture
def create(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))

    def create(dataset_id, observation_space, action_space, episodes):
        buffers = [minari.data_collector.EpisodeBuffer(**each) for each in episodes]
        minari.create_dataset_from_buffers(
            dataset_id,
            buffers,
            observation_space=observation_space,
            action_space=action_space,
        )
        return load_episodes(f"minari:{dataset_id}")

    return create


def ends(length: int, **flags: bool) -> dict[str, list[bool]]:
    """Only the last step ends anything."""
    return {
        name: [False] * (length - 1) + [flags.get(name, False)] for name in ("terminations", "truncations")
    }


def test_episodes_of_a_box_and_discrete_actions_that_do_not_count_from_0(create):
    rng = np.random.default_rng(0)
    observations = [rng.normal(size=(n + 1, 3)) for n in (4, 2)]
    data = create(
        "plugrad/box-v0",
        gym.spaces.Box(-np.inf, np.inf, (3,), np.float64),
        gym.spaces.Discrete(2, start=1),
        [
            {"observations": list(observations[0]), "actions": [1, 2, 2, 1], "rewards": [1, 2, 3, 4]}
            | ends(4, terminations=True),
            {"observations": list(observations[1]), "actions": [2, 1], "rewards": [5, 6]}
            | ends(2, truncations=True),
        ],
    )
    first, second = data.episodes
    np.testing.assert_array_equal(first.observations, observations[0].astype(np.float32))
    assert first.observations.dtype == np.float32
    np.testing.assert_array_equal(first.actions, [0, 1, 1, 0])
    np.testing.assert_array_equal(second.rewards, [5, 6])
    assert (first.terminated, first.truncated) == (True, False)
    assert (second.terminated, second.truncated) == (False, True)
    assert data.observation_space == gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)


def test_observations_that_are_no_box_are_flattened_as_an_env_runner_does(create):
    space = gym.spaces.Dict({"a": gym.spaces.Discrete(3), "b": gym.spaces.Box(-1, 1, (2,), np.float32)})
    steps = [{"a": np.int64(n % 3), "b": np.array([n, -n], np.float32) / 4} for n in range(4)]
    columns = {key: [step[key] for step in steps] for key in space}
    data = create(
        "plugrad/dict-v0",
        space,
        gym.spaces.Box(-1, 1, (1,), np.float32),
        [
            {"observations": columns, "actions": [np.zeros(1, np.float32)] * 3, "rewards": [0.0] * 3}
            | ends(3, terminations=True)
        ],
    )
    expected = [gym.spaces.flatten(space, step) for step in steps]
    np.testing.assert_array_equal(data.episodes[0].observations, expected)
    assert data.observation_space == space
    assert data.episodes[0].actions.shape == (3, 1)


def test_a_data_set_that_is_not_here_says_what_to_type(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with pytest.raises(
        ConfigError, match="minari:D4RL/pen/human-v2 is not on this machine: minari download D4RL"
    ):
        load_episodes("minari:D4RL/pen/human-v2")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rewards": [1.0, np.nan]}, "minari:plugrad/bad-v0, episode 0: 'rewards': expected finite numbers"),
        ({"observations": [np.full(3, np.inf)] * 3}, "episode 0: 'observations': expected finite numbers"),
    ],
)
def test_a_data_set_with_numbers_that_cannot_be_is_refused(create, change, words):
    buffer = {"observations": [np.zeros(3)] * 3, "actions": [0, 1], "rewards": [1.0, 1.0]} | change
    with pytest.raises(BatchError, match=words):
        create(
            "plugrad/bad-v0",
            gym.spaces.Box(-np.inf, np.inf, (3,), np.float64),
            gym.spaces.Discrete(2),
            [buffer | ends(2, terminations=True)],
        )


def test_a_damaged_data_set_is_one_error_that_names_it(create, tmp_path):
    space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    buffer = {"observations": [np.zeros(3)] * 3, "actions": [0, 1], "rewards": [1.0, 1.0]}
    create("plugrad/cut-v0", space, gym.spaces.Discrete(2), [buffer | ends(2, terminations=True)])
    (file,) = (tmp_path / "plugrad/cut-v0").rglob("*.hdf5")
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(BatchError, match="minari:plugrad/cut-v0 cannot be read"):
        load_episodes("minari:plugrad/cut-v0")


def test_actions_with_parts_become_rows(create):
    space = gym.spaces.Dict(
        turn=gym.spaces.Discrete(3, start=5), push=gym.spaces.Box(-1, 1, (2,), np.float32)
    )
    turns, pushes = [5, 7, 6], np.linspace(-1.0, 1.0, 6, dtype=np.float32).reshape(3, 2)
    data = create(
        "plugrad/parts-v0",
        gym.spaces.Box(-1, 1, (1,), np.float32),
        space,
        [
            {
                "observations": [np.zeros(1, np.float32)] * 4,
                "actions": {"turn": turns, "push": list(pushes)},
                "rewards": [0.0] * 3,
            }
            | ends(3, terminations=True)
        ],
    )
    assert list(data.action_space) == ["push", "turn"]  # Minari's order
    np.testing.assert_array_equal(data.episodes[0].actions, np.column_stack([pushes, [0, 2, 1]]))
    assert data.action_space == space


def test_parts_of_a_data_set_are_read_by_key_whatever_the_order_of_its_keys(create):
    """Minari sorts the keys of a Dict; the environment's stand in the order of its author."""
    part = gym.spaces.Box(-1, 1, (1,), np.float32)
    steps = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)
    actions = gym.spaces.Dict([("grip", gym.spaces.Discrete(2)), ("arm", part)])
    data = create(
        "plugrad/keys-v0",
        gym.spaces.Dict([("noise", part), ("speed", part)]),
        gym.spaces.Dict([("arm", part), ("grip", gym.spaces.Discrete(2))]),
        [
            {
                "observations": {"noise": list(steps[:, :1]), "speed": list(steps[:, 1:])},
                "actions": {"arm": list(steps[:3, :1]), "grip": [0, 1, 1]},
                "rewards": [0.0] * 3,
            }
            | ends(3, terminations=True)
        ],
    )
    own = gym.spaces.Dict([("speed", part), ("noise", part)])
    (episode,) = data.read_as(observation_space=own, action_space=actions, where="a data set").episodes
    np.testing.assert_array_equal(episode.observations, steps[:, ::-1])
    np.testing.assert_array_equal(episode.actions, np.stack([[0, 1, 1], steps[:3, 0]], 1))
    renamed = gym.spaces.Dict([("speed", part), ("sound", part)])
    with pytest.raises(SpaceMismatchError, match="the Dict lacks 'sound'; the Dict has 'noise'"):
        data.read_as(observation_space=renamed, action_space=actions, where="a data set")
