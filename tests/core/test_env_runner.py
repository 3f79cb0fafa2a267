"""The env runner: every row of a chunk is what happened, and chunks join to whole episodes."""

from typing import Any

import counting
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from hypothesis import given
from hypothesis import strategies as st
from sampling import Sampling, assert_chunk, balance, make_runner, swing

from plugrad import AlgorithmConfig
from plugrad.errors import BatchError, ConfigError
from plugrad.sampling.env_runner import EnvRunner
from plugrad.sampling.evaluation import evaluate

MODES = ("sync", "vector_entry_point")


@pytest.mark.parametrize("mode", MODES)
@given(
    num_envs=st.integers(1, 4),
    fragments=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    seed=st.integers(0),
)
def test_every_row_of_every_chunk_is_what_happened(mode, num_envs, fragments, seed):
    runner = make_runner(num_envs_per_env_runner=num_envs, vectorization_mode=mode, seed=seed)
    open_chunks: dict[str, Any] = {}
    for num_steps in fragments:
        chunks = runner.sample(num_steps)
        steps = sum(len(chunk) for chunk in chunks)
        assert steps == runner.get_metrics()["num_env_steps_sampled"]
        assert steps == num_envs * num_steps if mode == "sync" else steps <= num_envs * num_steps
        for chunk in chunks:
            assert_chunk(chunk)
            if chunk.id_ in open_chunks:
                np.testing.assert_array_equal(
                    open_chunks.pop(chunk.id_).observations[-1], chunk.observations[0]
                )
            else:
                assert chunk.observations[0, 1] == 0
            if not chunk.is_done:
                open_chunks[chunk.id_] = chunk
        assert len(open_chunks) <= num_envs
    runner.close()


@pytest.mark.parametrize("mode", MODES)
def test_metrics_are_of_whole_episodes_not_of_chunks(mode):
    runner = make_runner(vectorization_mode=mode)
    finished, total = [], 0
    for _ in range(40):
        chunks = runner.sample(3)
        ended = [int(chunk.observations[0, 0]) for chunk in chunks if chunk.is_done]
        finished += ended
        total += sum(map(len, chunks))
        assert runner.get_metrics()["num_episodes"] == len(ended)
        assert runner.total_steps == total
    metrics, window = runner.get_metrics(), finished[-20:]
    returns = [counting.return_of(key) for key in window]
    assert len(finished) > 20
    assert metrics["episode_return_mean"] == pytest.approx(np.mean(returns))
    assert (metrics["episode_return_min"], metrics["episode_return_max"]) == (min(returns), max(returns))
    assert metrics["episode_len_mean"] == pytest.approx(np.mean([counting.length_of(key) for key in window]))


def test_metrics_have_no_returns_before_an_episode_has_finished():
    runner = make_runner(balance, env="CartPole-v1")
    runner.sample(3)
    assert runner.get_metrics() == {"num_env_steps_sampled": 9, "num_episodes": 0}


def test_the_policy_is_called_once_per_vector_step_with_all_environments():
    shapes = []

    def act(observations):
        shapes.append(observations.shape)
        return counting.policy(observations)

    make_runner(act).sample(17)
    assert shapes == [(3, 3)] * 17


def test_a_time_limit_truncates_and_leaves_the_true_last_observation():
    """Pendulum never terminates: 200 steps, and all successors obey the equations of motion, also the last."""
    runner = make_runner(swing, env="Pendulum-v1", rollout_fragment_length=70)
    chunks = [chunk for _ in range(6) for chunk in runner.sample()]
    assert sum(chunk.truncated for chunk in chunks) == 6
    assert not any(chunk.terminated for chunk in chunks)
    assert runner.get_metrics()["episode_len_mean"] == 200
    for chunk in chunks:
        _, sin, speed = chunk.observations[:-1].T
        torque = np.clip(chunk.actions[:, 0], -2, 2)
        np.testing.assert_allclose(
            chunk.observations[1:, 2], np.clip(speed + (15 * sin + 3 * torque) * 0.05, -8, 8), atol=1e-4
        )


@pytest.mark.parametrize("mode", MODES)
def test_cartpole_is_truncated_at_500_or_terminated_before(mode):
    runner = make_runner(balance, env="CartPole-v1", rollout_fragment_length=600, vectorization_mode=mode)
    ended = [chunk for chunk in runner.sample() if chunk.is_done]
    assert ended
    for episode in ended:
        upright = abs(episode.observations[-1, 2]) < 0.2095 and abs(episode.observations[-1, 0]) < 2.4
        assert episode.truncated == (len(episode) == 500)
        assert episode.terminated != upright
        assert episode.get_return() == len(episode)


class Echo(gym.Env):
    """Observes what it was told, as floats; one step per episode."""

    def __init__(self, space):
        self.action_space = space
        self.observation_space = Box(-np.inf, np.inf, (int(np.prod(space.shape)),), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action):
        return np.ravel(action).astype(np.float32), 0.0, True, False, {}


@pytest.mark.parametrize(
    ("space", "action", "told"),
    [
        (Box(-2.0, 1.0, (3,), np.float32), np.float32([-5, 0.5, 9]), [-2, 0.5, 1]),
        (Discrete(4, start=-1), np.int64(3), [2]),
        (Discrete(4), np.int64(3), [3]),
        (gym.spaces.MultiDiscrete([3, 4], start=[0, 10]), np.array([2, 3]), [2, 13]),
        (gym.spaces.MultiBinary(2), np.array([0, 1], np.int8), [0, 1]),
    ],
)
def test_stored_actions_are_the_policys_and_the_environment_gets_legal_ones(space, action, told):
    runner = make_runner(
        lambda observations: {"actions": np.stack([action] * len(observations))},
        env=Echo,
        env_config={"space": space},
    )
    for episode in runner.sample(2):
        np.testing.assert_array_equal(episode.actions, [action])
        np.testing.assert_array_equal(episode.observations[-1], told)


class Careless(gym.Env):
    """Observes the two numbers of the action, and then writes into it."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)

    def __init__(self, space):
        self.action_space = space

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        part = action["part"] if isinstance(action, dict) else action
        told = part.astype(np.float32)
        part[:] = 0
        return told, 0.0, False, False, {}


@pytest.mark.parametrize(
    "space",
    [
        Box(-2.0, 1.0, (2,), np.float32),
        MultiDiscrete([3, 4]),
        gym.spaces.MultiBinary(2),
        gym.spaces.Dict({"part": MultiDiscrete([3, 4])}),
    ],
)
def test_an_environment_may_write_into_the_actions_that_it_gets(space):
    settings = {"env": Careless, "env_config": {"space": space}, "num_envs_per_env_runner": 1}
    runner, resumed = make_runner(**settings), make_runner(**settings)
    (episode,) = runner.sample(9, random_actions=True)
    told = episode.observations[1:]
    assert told.any()
    np.testing.assert_array_equal(episode.actions, told)
    state = runner.get_state()
    for _ in range(2):
        resumed.set_state(state)
        np.testing.assert_array_equal(resumed.sample(1, random_actions=True)[0].observations[0], told[-1])


@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_gives_the_same_episodes_and_neighbours_share_none(mode):
    def keys(runner):
        return [int(chunk.observations[0, 0]) for chunk in runner.sample(20)]

    first = make_runner(vectorization_mode=mode, seed=7)
    begun = keys(first)
    assert begun == keys(make_runner(vectorization_mode=mode, seed=7))
    assert not set(begun) & set(keys(make_runner(vectorization_mode=mode, seed=8)))
    assert keys(first) != begun
    first.reset(7)
    assert keys(first) == begun
    unseeded = [keys(make_runner(vectorization_mode=mode, seed=None)) for _ in range(2)]
    assert unseeded[0] != unseeded[1]


def test_normalised_observations_are_what_is_stored_and_each_is_counted_once():
    """Each stored observation, a final one too, is the raw one scaled by the statistics of that moment."""
    seen: list[np.ndarray] = []

    class Recorded(counting.CountingEnv):
        def reset(self, **kwargs):
            observation, info = super().reset(**kwargs)
            seen.append(observation)
            return observation, info

        def step(self, action):
            observation, *rest = super().step(action)
            seen.append(observation)
            return observation, *rest

    runner = make_runner(
        lambda observations: {"actions": np.zeros(len(observations), np.int64)},
        env=Recorded,
        num_envs_per_env_runner=1,
        normalize_observations=True,
    )
    chunks = runner.sample(15) + runner.sample(15)
    raw = np.array(seen)
    assert runner.normalizer.count == len(raw) == 31 + sum(chunk.is_done for chunk in chunks)
    np.testing.assert_allclose(runner.normalizer.mean, raw.mean(axis=0))
    np.testing.assert_allclose(runner.normalizer.variance, raw.var(axis=0), atol=1e-12)
    position = 0
    for chunk in chunks:
        stop = position + len(chunk) + 1
        for row, index in zip(chunk.observations, range(position, stop), strict=True):
            # An observation that ends or begins an episode is counted together with the other of the two.
            candidates = [raw[: index + more] for more in (1, 2)]
            scaled = [
                np.clip((raw[index] - rows.mean(axis=0)) / np.sqrt(rows.var(axis=0) + 1e-8), -10, 10)
                for rows in candidates
            ]
            assert any(np.allclose(row, one, atol=1e-4) for one in scaled)
        position = stop if chunk.is_done else stop - 1
    assert runner.observation_space == Box(-np.inf, np.inf, (3,), np.float32)


def test_a_frozen_normaliser_scales_and_learns_nothing():
    trained = make_runner(normalize_observations=True)
    trained.sample(50)
    frozen = trained.normalizer.frozen_copy()
    before = repr(frozen.get_state())
    runner = EnvRunner(config=Sampling(), act=counting.policy, seed=1, normalizer=frozen)
    raw = make_runner(lambda rows: counting.policy(frozen.normalize(rows)), seed=1)
    for scaled, plain in zip(runner.sample(30), raw.sample(30), strict=True):
        np.testing.assert_array_equal(scaled.observations, frozen.normalize(plain.observations))
    assert repr(frozen.get_state()) == before


def test_discrete_observations_are_one_hot():
    runner = make_runner(lambda rows: {"actions": np.ones(len(rows), np.int64)}, env="FrozenLake-v1")
    for episode in runner.sample(30):
        assert episode.observations.shape == (len(episode) + 1, 16)
        assert episode.observations.dtype == np.float32
        np.testing.assert_array_equal(episode.observations.sum(axis=1), 1)
    assert runner.observation_space == Box(0, 1, (16,), np.float32)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"rollout_fragment_length": 7}, 7),
        ({"rollout_fragment_length": None, "train_batch_size": 63}, 21),
        ({"rollout_fragment_length": None, "train_batch_size": 64}, 22),
        ({"rollout_fragment_length": None, "train_batch_size": 64, "num_env_runners": 2}, 11),
        ({"rollout_fragment_length": None, "train_batch_size": 2}, 1),
    ],
)
def test_the_fragment_length_is_configured_or_a_share_of_the_batch(settings, expected):
    runner = make_runner(**settings)
    assert runner.fragment_length == expected
    assert sum(map(len, runner.sample())) == 3 * expected


def test_a_column_without_a_row_per_environment_is_refused():
    runner = make_runner(
        lambda rows: {"actions": np.zeros(len(rows), np.int64), "vf_preds": np.zeros((1, 1))}
    )
    with pytest.raises(BatchError, match=r"'vf_preds' of shape \(1, 1\) for 3 environments"):
        runner.sample()


def test_an_algorithms_config_says_all_that_a_runner_reads():
    config = (
        AlgorithmConfig()
        .environment("CartPole-v1", env_config={"sutton_barto_reward": True})
        .training(train_batch_size=40)
        .env_runners(num_envs_per_env_runner=4, normalize_observations=True)
    )
    runner = EnvRunner(config=config, act=balance, seed=0)
    episodes = runner.sample()
    assert [episode.observations.shape for episode in episodes] == [(11, 4)] * 4
    assert runner.normalizer.count == 44
    assert all(episode.get_return() == 0 for episode in episodes)


class ThreeLives(counting.CountingEnv):
    """No Atari game, although some of its infos say whether a life was lost."""

    def step(self, action: Any) -> Any:
        *answer, info = super().step(action)
        return *answer, {**info, "life_lost": True} if self.steps % 2 else info


def test_an_info_that_is_named_as_ataris_means_nothing_without_atari():
    runner = make_runner(env=ThreeLives)
    for chunk in [chunk for _ in range(4) for chunk in runner.sample(7)]:
        assert_chunk(chunk)
    other = make_runner()
    assert evaluate(runner, num_episodes=1, seed=3) == evaluate(other, num_episodes=1, seed=3)


class Interrupted(counting.CountingEnv):
    """Is interrupted once, in a step that has a number among those of all environments."""

    before = 0

    def step(self, action: Any) -> Any:
        Interrupted.before -= 1
        if Interrupted.before == 0:
            raise KeyboardInterrupt
        return super().step(action)


@pytest.mark.parametrize("before", [2, 13, 30])
def test_after_an_error_new_episodes_begin(before, monkeypatch):
    monkeypatch.setattr(Interrupted, "before", 36 + before)
    runner = make_runner(env=Interrupted)
    seen = {chunk.id_ for chunk in runner.sample(12)}
    with pytest.raises(KeyboardInterrupt):
        runner.sample(10)
    after = runner.sample(20)
    assert {chunk.id_ for chunk in after}.isdisjoint(seen)
    assert runner.total_steps == 96
    for chunk in after:
        assert_chunk(chunk)
        assert chunk.observations[0, 1] == 0
    ended = [chunk for chunk in after if chunk.is_done]
    assert runner.finished_episodes == [(chunk.get_return(), len(chunk)) for chunk in ended][-20:]


def test_a_fragment_has_steps_and_closing_twice_is_fine():
    runner = make_runner()
    with pytest.raises(ConfigError, match="at least 1 step"):
        runner.sample(0)
    runner.close()
    runner.close()


# --- random actions ---


class Shifted(gym.Env[np.ndarray, Any]):
    """Refuses actions that its spaces do not contain."""

    observation_space = Box(-1, 1, (1,))

    def __init__(self, action_space: gym.Space[Any]) -> None:
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return np.zeros(1, np.float32), 0.0, False, False, {}


BOUNDS = Box(np.array([-2.0, 0.5], np.float32), np.array([2.0, 1.0], np.float32))


def random_runner(space: gym.Space[Any], seed: int | None = 0, **settings: Any) -> EnvRunner:
    def refuse(observations):
        raise AssertionError("the policy was asked")

    return make_runner(refuse, seed, env=Shifted, env_config={"action_space": space}, **settings)


@pytest.mark.parametrize(
    ("space", "low", "high", "dtype"),
    [
        (Discrete(3, start=4), 0, 2, np.int64),
        (MultiDiscrete([2, 3], start=[1, -5]), [0, 0], [1, 2], np.int64),
        (BOUNDS, BOUNDS.low, BOUNDS.high, np.float32),
    ],
    ids=["discrete", "multi-discrete", "box"],
)
def test_random_actions_are_uniform_in_the_space_and_count_from_0(space, low, high, dtype):
    chunks = random_runner(space).sample(1000, random_actions=True)
    actions = np.concatenate([chunk.actions for chunk in chunks])
    assert actions.dtype == dtype
    assert actions.shape == (3000, *space.shape)
    assert ((actions >= low) & (actions <= high)).all()
    width = np.subtract(high, low, dtype=np.float64)
    count = width + 1 if dtype == np.int64 else np.inf  # of a uniform distribution: (n^2 - 1) / 12
    variance = (count**2 - 1) / 12 if dtype == np.int64 else width**2 / 12
    np.testing.assert_allclose(actions.mean(0), np.add(low, high) / 2, atol=0.1 * width.max())
    np.testing.assert_allclose(actions.var(0), variance, rtol=0.1)
    assert all(chunk.extra_model_outputs == {} for chunk in chunks)


def test_random_actions_follow_from_the_seed_and_the_steps_so_far():
    def played(runner: EnvRunner) -> np.ndarray:
        return np.concatenate([chunk.actions for chunk in runner.sample(5, random_actions=True)])

    one, same, other = random_runner(BOUNDS), random_runner(BOUNDS), random_runner(BOUNDS, seed=1)
    first, second = played(one), played(one)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(played(same), first)
    assert not np.array_equal(played(other), first)
    resumed = random_runner(BOUNDS)
    resumed.set_state(same.get_state())
    np.testing.assert_array_equal(played(resumed), second)
    unseeded = random_runner(BOUNDS, seed=None), random_runner(BOUNDS, seed=None)
    assert not np.array_equal(*map(played, unseeded))


def test_random_actions_leave_what_the_policy_does_next_as_it_is():
    runner = make_runner()
    for num_steps, is_random in ((7, False), (5, True), (9, False)):
        for chunk in runner.sample(num_steps, random_actions=is_random):
            if not is_random:
                assert_chunk(chunk)
