"""What sampling costs, as laws that no clock needs: which Python functions are called, and what is not copied."""

import gc
import sys
from collections import Counter, defaultdict
from types import FrameType
from typing import Any

import counting
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st
from sampling import balance, make_runner

from plugrad.episodes import SingleAgentEpisode, concat_chunks
from plugrad.networks.actor_critic import ActorCritic
from plugrad.sampling.env_runner import EnvRunner
from plugrad.sampling.environments import env_makers
from plugrad.sampling.rollout_fragment import RolloutFragment
from plugrad.sampling.vector_envs import LeanSyncVectorEnv
from plugrad_ppo import PPOConfig

SAME_STEP = AutoresetMode.SAME_STEP
NUM_STEPS = 40


def assert_same_episode(found: SingleAgentEpisode, expected: SingleAgentEpisode) -> None:
    parts, others = ({**vars(each), **each.extra_model_outputs} for each in (found, expected))
    assert parts.keys() == others.keys() == parts.keys() | set(SingleAgentEpisode.__dataclass_fields__)
    for name in parts.keys() - {"extra_model_outputs"}:
        np.testing.assert_array_equal(parts[name], others[name])
        assert np.asarray(parts[name]).dtype == np.asarray(others[name]).dtype


def calls_of(runner: EnvRunner, num_steps: int) -> Counter[str]:
    """The Python functions that a sample from new episodes calls."""
    found: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            found[f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}"] += 1

    runner.reset(0)
    gc.disable()  # hypothesis listens to collections
    sys.setprofile(count)
    try:
        runner.sample(num_steps)
    finally:
        sys.setprofile(None)
        gc.enable()
    return found


def test_a_step_of_a_vectorised_environment_makes_as_many_calls_for_many_environments():
    per_step = []
    for num_envs in (2, 64):
        settings = {"env": "CartPole-v1", "vectorization_mode": "vector_entry_point"}
        runner = make_runner(balance, num_envs_per_env_runner=num_envs, **settings)
        runner.sample(1)
        more, fewer = calls_of(runner, 20), calls_of(runner, 10)
        per_step.append((more.total() - fewer.total()) / 10)
    assert per_step[0] == per_step[1]
    assert per_step[0] <= 60


def test_env_runners_compute_no_value_network():
    algorithm = PPOConfig().environment("CartPole-v1").framework("numpy").build_algo()
    found = calls_of(algorithm.env_runner, NUM_STEPS)
    algorithm.stop()
    network = ActorCritic.__module__ + "." + ActorCritic.__qualname__
    assert found[f"{network}.forward"] == found[f"{network}._features"] == NUM_STEPS


def test_an_episode_of_a_rollout_is_made_by_few_calls():
    runner = make_runner(num_envs_per_env_runner=8)
    found = calls_of(runner, NUM_STEPS)
    num_episodes = found[f"{RolloutFragment.__module__}.RolloutFragment.episode"]
    assert num_episodes > 8
    of_episodes = {name: number for name, number in found.items() if number == num_episodes}
    assert len(of_episodes) <= 12, of_episodes


def episodes_of(runner: EnvRunner, lengths: list[int]) -> dict[str, SingleAgentEpisode]:
    chunks = defaultdict(list)
    for length in lengths:
        for chunk in runner.sample(length):
            chunks[chunk.id_].append(chunk)
    return {str(id_): concat_chunks(each) for id_, each in chunks.items()}


@given(ends=st.sets(st.integers(1, NUM_STEPS - 1)), mode=st.sampled_from(["sync", "vector_entry_point"]))
def test_fragments_of_any_lengths_have_the_same_episodes(ends, mode):
    lengths = np.diff([0, *sorted(ends), NUM_STEPS]).tolist()
    whole, parts = (
        episodes_of(make_runner(seed=3, vectorization_mode=mode), each) for each in ([NUM_STEPS], lengths)
    )
    assert whole.keys() == parts.keys()
    for id_, episode in whole.items():
        assert_same_episode(episode, parts[id_])


@pytest.mark.parametrize("env", [counting.ID, "CartPole-v1", "Pendulum-v1"])
def test_environments_in_turn_answer_as_gymnasiums(env):
    ours = LeanSyncVectorEnv(env_makers(env, num_envs=3))
    theirs = SyncVectorEnv(ours.env_fns, autoreset_mode=SAME_STEP)
    ours.action_space.seed(0)
    np.testing.assert_array_equal(ours.reset(seed=5)[0], theirs.reset(seed=5)[0])
    for _ in range(60):
        actions = ours.action_space.sample()
        *found, infos = ours.step(actions)
        *expected, all_infos = theirs.step(actions)
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, other)
            assert mine.dtype == other.dtype
        assert set(infos) == set(all_infos) & {"final_obs", "_final_obs", "final_info", "_final_info"}
        for n in np.flatnonzero(infos.get("_final_obs", ())):
            np.testing.assert_array_equal(infos["final_obs"][n], all_infos["final_obs"][n])


class Talks(gym.Wrapper):
    """Says much in its infos, and which actions are allowed."""

    def reset(self, **settings):
        observation, info = self.env.reset(**settings)
        return observation, {**info, "speed": 1.0, "action_mask": np.array([1, 1], np.int8)}

    def step(self, action):
        *answer, info = self.env.step(action)
        return (*answer, {**info, "speed": 2.0, "action_mask": np.array([1, 1], np.int8)})


def test_of_infos_the_masks_are_kept():
    envs = LeanSyncVectorEnv(env_makers(lambda: Talks(gym.make("CartPole-v1")), num_envs=2))
    kept = {"action_mask", "_action_mask"}
    assert set(envs.reset(seed=0)[1]) == kept
    ended = False
    while not ended:
        *_, terminated, _, infos = envs.step(np.zeros(2, np.int64))
        ended = bool(terminated.any())
        assert set(infos) - {"final_obs", "_final_obs", "final_info", "_final_info"} == kept
    assert set(infos["final_info"]) == kept


def test_episodes_of_a_rollout_are_as_checked_ones():
    for episode in make_runner().sample(50):
        assert_same_episode(SingleAgentEpisode(**vars(episode)), episode)
        assert type(episode.terminated) is type(episode.truncated) is bool


@pytest.mark.parametrize("num_envs", [1, 12])
@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_returns_of_few_and_of_many_episodes_are_sums_of_their_rewards(num_envs, mode):
    runner = make_runner(num_envs_per_env_runner=num_envs, vectorization_mode=mode, seed=2)
    episodes = defaultdict(list)
    for _ in range(6):
        for chunk in runner.sample(17):
            episodes[chunk.id_].append(chunk)
    ended = [chunks for chunks in episodes.values() if chunks[-1].is_done]
    found = runner.finished_episodes
    for value, length in found:
        assert (value, length) in [
            (sum(map(SingleAgentEpisode.get_return, c)), sum(map(len, c))) for c in ended
        ]
    assert min(20, len(ended)) >= len(found) > 0
