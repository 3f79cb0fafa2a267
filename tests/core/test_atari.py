"""`.env_runners(atari=True)`: learners see lives and signs of rewards, all else whole games and their own rewards."""

from contextlib import closing
from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from sampling import make_runner

from plugrad.columns import Columns
from plugrad.config import Config
from plugrad.config.from_files import check_numbers
from plugrad.episodes import own_episode
from plugrad.errors import ConfigError
from plugrad.offline.recorder import EpisodeRecorder
from plugrad.replay import NStepTransitions
from plugrad.sampling.evaluation import evaluation_settings
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig

needs.extra("ale_py")
needs.extra("cv2")
GAME = "ALE/SpaceInvaders-v5"  # three lives, rewards from 5 points
WHOLE = {"terminal_on_life_loss": False}


def act(observations: np.ndarray) -> dict[str, np.ndarray]:
    """Moves and shoots as the pixels say."""
    return {"actions": observations.astype(np.int64).sum(axis=(1, 2, 3)) % 6}


def runner(atari: Any = True, **settings: Any) -> Any:
    return make_runner(act, env=GAME, atari=atari, **{"num_envs_per_env_runner": 2, **settings})


@pytest.fixture(scope="module")
def games() -> tuple[Any, list[Any]]:
    """A runner that has played some games, and all chunks."""
    sampler = runner()
    chunks = [chunk for _ in range(8) for chunk in sampler.sample(150)]
    assert sampler.num_episodes_begun > 3
    return sampler, chunks


def test_frames_are_grey_small_and_four(games):
    _, chunks = games
    for chunk in chunks:
        assert chunk.observations.shape[1:] == (4, 84, 84)
        assert chunk.observations.dtype == np.uint8
        np.testing.assert_array_equal(chunk.observations[1:, :-1], chunk.observations[:-1, 1:])


def test_a_lost_life_ends_what_is_learned_from_and_not_the_game(games):
    sampler, chunks = games
    lost = [chunk for chunk in chunks if chunk.extra_model_outputs[Columns.LIFE_LOST][-1]]
    assert lost
    assert all(chunk.terminated for chunk in lost)
    assert not any(chunk.extra_model_outputs[Columns.LIFE_LOST][:-1].any() for chunk in chunks)
    games_ended = [chunk for chunk in chunks if own_episode(chunk).is_done]
    assert len(games_ended) == sampler.num_episodes_begun - 2
    assert len(lost) >= 2 * len(games_ended)  # three lives, of which the last one ends the game


def test_learners_see_signs_of_rewards(games):
    _, chunks = games
    own = np.concatenate([chunk.extra_model_outputs[Columns.ENV_REWARDS] for chunk in chunks])
    np.testing.assert_array_equal(np.concatenate([chunk.rewards for chunk in chunks]), np.sign(own))
    assert own.max() >= 5


def test_games_and_reported_returns_are_those_without_either(games):
    sampler, chunks = games
    plain = runner(WHOLE, clip_rewards=False)
    whole = [chunk for _ in range(8) for chunk in plain.sample(150)]
    assert plain.get_metrics() == sampler.get_metrics()
    for id_ in {chunk.id_ for chunk in whole}:
        for name in ("rewards", "actions"):
            found = [getattr(own_episode(each), name) for each in chunks if each.id_ == id_]
            expected = [getattr(each, name) for each in whole if each.id_ == id_]
            np.testing.assert_array_equal(np.concatenate(found), np.concatenate(expected))
    assert not any(Columns.LIFE_LOST in chunk.extra_model_outputs for chunk in whole)


def test_data_sets_have_whole_games_for_their_own_rewards(games, tmp_path):
    sampler, chunks = games
    spaces = {"observation_space": sampler.observation_space, "action_space": sampler.action_space}
    recorder = EpisodeRecorder(tmp_path, **spaces)
    recorder.add(chunks)  # lives of one game in one sample, too
    returns = [each.get_return() for each in recorder._waiting]
    finished = sampler.get_state()["finished_returns"]
    assert sorted(returns) == sorted(finished.tolist())


def test_transitions_end_with_a_life(games):
    _, chunks = games
    make = NStepTransitions(3, 0.99)
    rows = make(chunks)
    ends = [chunk for chunk in chunks if chunk.terminated]
    assert rows[Columns.TERMINATEDS].sum() == sum(min(3, len(chunk)) for chunk in ends)


def test_running_games_continue_from_a_state_to_the_bit():
    sampler, other = runner(), runner(seed=3)
    sampler.sample(170)
    other.set_state(sampler.get_state())
    for expected, found in zip(sampler.sample(60), other.sample(60), strict=True):
        np.testing.assert_array_equal(found.observations, expected.observations)
        np.testing.assert_array_equal(
            found.extra_model_outputs["life_lost"], expected.extra_model_outputs["life_lost"]
        )


def test_evaluation_has_settings_of_its_own():
    config = Config().env_runners(atari={"noop_max": 5}, normalize_rewards=True)
    changed = config.env_runners(**evaluation_settings(config))
    assert changed.atari == {"noop_max": 5, **WHOLE}
    assert (changed.normalize_rewards, changed.clip_rewards) == (False, False)
    plain = Config()
    assert plain.env_runners(**evaluation_settings(plain)).atari is False


@pytest.mark.parametrize("kind", [PPOConfig, DQNConfig])
@pytest.mark.parametrize(
    ("model", "first"), [({}, (8, 8, 4, 32)), ({"conv_filters": [[16, 16, 8]]}, (16, 16, 4, 16))]
)
def test_the_network_has_the_published_convolutions_unless_others_are_set(kind, model, first):
    config = kind().framework("numpy").environment(GAME).env_runners(atari=True).debugging(seed=0)
    learner = config.rl_module(model_config={"fcnet_hiddens": [4], **model}).build_learner()
    weights = learner.module["default_policy"].get_state()
    assert first in {each.shape for each in weights.values()}
    frames = np.zeros((2, 4, 84, 84), np.uint8)
    assert learner.compute_actions(frames)["actions"].shape == (2,)


def test_arguments_of_the_preprocessing_replace_the_standard_ones():
    chunk = runner({"screen_size": 42, "noop_max": 0}, frame_stack=2).sample(2)[0]
    assert chunk.observations.shape[1:] == (2, 42, 42)
    assert Columns.LIFE_LOST in chunk.extra_model_outputs
    with closing(runner(frame_stack=1)) as one:
        assert one.observation_space.shape == (84, 84)


@pytest.mark.parametrize(
    ("env", "atari", "words"),
    [
        (
            "CartPole-v1",
            True,
            r"cannot make the environment 'CartPole-v1' with env_config=\{'frameskip': 1\}",
        ),
        (
            GAME,
            {"nop_max": 3},
            "SpaceInvaders-v5' cannot be preprocessed .*unexpected keyword argument 'nop_max'",
        ),
        (
            GAME,
            {"screen_size": 0},
            "SpaceInvaders-v5' cannot be preprocessed .*screen_size.*Expected: a game of the",
        ),
    ],
)
def test_what_is_no_game_or_no_argument_is_an_error_that_names_both(env, atari, words):
    with pytest.raises(ConfigError, match=words):
        make_runner(act, env=env, atari=atari)


def test_a_game_that_skips_frames_itself_is_an_error_that_says_what_to_change():
    with pytest.raises(
        ConfigError, match=r"SpaceInvaders-v5' cannot be preprocessed .*without a frame skip of its own"
    ):
        make_runner(act, env=GAME, atari=True, env_config={"frameskip": 4})


def test_worker_processes_play_the_same_games():
    sync, workers = runner(), runner(vectorization_mode="async")
    with closing(workers):
        for _ in range(2):
            for expected, found in zip(sync.sample(60), workers.sample(60), strict=True):
                np.testing.assert_array_equal(found.rewards, expected.rewards)
                for column, values in expected.extra_model_outputs.items():
                    np.testing.assert_array_equal(found.extra_model_outputs[column], values)


@pytest.mark.parametrize("settings", [{"frame_stack": 10**6}, {"atari": {"screen_size": 10**6}}])
def test_a_file_may_not_ask_for_frames_that_no_machine_holds(settings):
    with pytest.raises(ConfigError, match="=1000000: from a file at most"):
        check_numbers({"env_runners": settings}, Config.fields())


def test_a_policy_takes_what_gymnasiums_wrappers_give():
    env = FrameStackObservation(AtariPreprocessing(gym.make(GAME, frameskip=1)), 4)
    assert runner().env_observation_space == env.observation_space
