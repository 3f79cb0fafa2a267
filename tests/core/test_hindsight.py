"""Hindsight experience replay: copies of steps whose goals their episode reached, with the rewards of these goals."""

import gymnasium as gym
import numpy as np
import pytest
from goals import BitFlip, OneByOne
from learning import digest

from plugrad import SingleAgentEpisode
from plugrad.episodes import concat_chunks
from plugrad.errors import ConfigError
from plugrad.replay.hindsight import STRATEGIES, GoalRewards, HindsightTransitions
from plugrad.sampling.environments import make_env
from plugrad_dqn import DQNConfig

BITS, STEPS, COPIES, GAMMA = 3, 6, 4, 0.9
SPACE = BitFlip(BITS).observation_space
ACHIEVED, DESIRED = slice(0, BITS), slice(BITS, 2 * BITS)  # a Dict's keys are in alphabetic order


def episode(id_="e", steps=STEPS, *, seed=0, truncated=True):
    """Random flips; each state is another one than the state before it."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(BITS, size=steps)
    states = [rng.integers(0, 2, BITS).astype(np.float32)]
    for action in actions:
        states.append(np.where(np.arange(BITS) == action, 1.0 - states[-1], states[-1]).astype(np.float32))
    goal = 1.0 - states[0]
    rows = [np.concatenate([state, goal, state]) for state in states]
    rewards = [BitFlip().compute_reward(state, goal, {}) for state in states[1:]]
    return SingleAgentEpisode(
        observations=np.stack(rows),
        actions=actions,
        rewards=np.float32(rewards),
        truncated=truncated,
        id_=id_,
        t_started=0,
    )


def made(strategy="future", env=BitFlip, number=COPIES):
    rewards = GoalRewards(make_env(env, {"bits": BITS}))
    return HindsightTransitions(strategy, number, SPACE, lambda: rewards, GAMMA, seed=3)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_copies_have_the_goals_of_their_strategy_and_their_rewards(strategy):
    whole = episode()
    rows = made(strategy)([whole])
    own = {name: each[:STEPS] for name, each in rows.items()}
    np.testing.assert_array_equal(own["obs"], whole.observations[:-1])
    np.testing.assert_array_equal(own["rewards"], whole.rewards)
    copies = 1 if strategy == "final" else COPIES
    assert {len(each) for each in rows.values()} == {STEPS * (1 + copies)}
    reached = [tuple(each) for each in whole.observations[1:, ACHIEVED]]
    goals = set()
    for n in range(STEPS, len(rows["obs"])):
        step = (n - STEPS) // copies
        old, new = rows["obs"][n], rows["new_obs"][n]
        goal = tuple(new[DESIRED])
        goals.add(goal)
        assert goal in {"future": reached[step:], "final": reached[-1:], "episode": reached}[strategy]
        assert tuple(old[DESIRED]) == goal
        for found, state in ((old, whole.observations[step]), (new, whole.observations[step + 1])):
            np.testing.assert_array_equal(np.delete(found, range(BITS, 2 * BITS)), np.delete(state, DESIRED))
        is_there = reached[step] == goal
        assert (rows["rewards"][n], rows["terminateds"][n]) == (0.0 if is_there else -1.0, is_there)
        assert (rows["actions"][n], rows["n_step"][n]) == (whole.actions[step], 1.0)
    assert len(goals) == 1 if strategy == "final" else len(goals) > 1


def test_an_episode_in_chunks_is_the_whole_one_also_after_a_checkpoint():
    whole = episode()
    cuts = [(0, 2), (2, 3), (3, STEPS)]
    chunks = [
        SingleAgentEpisode(
            observations=whole.observations[start : stop + 1],
            actions=whole.actions[start:stop],
            rewards=whole.rewards[start:stop],
            truncated=stop == STEPS,
            id_="e",
            t_started=start,
        )
        for start, stop in cuts
    ]
    np.testing.assert_array_equal(concat_chunks(chunks).observations, whole.observations)
    found, each = [], made()
    for chunk in chunks:
        found.append(each([chunk, episode(f"other {chunk.t_started}")]))
        resumed = made()
        resumed.set_state(each.get_state())
        each = resumed
    others = STEPS * (1 + COPIES)
    rows = {name: np.concatenate([part[name][:-others] for part in found]) for name in found[0]}
    for name, expected in made()([whole]).items():
        np.testing.assert_array_equal(rows[name], expected, err_msg=name)
    assert each.get_state() == {}


def test_steps_that_were_lost_end_what_waits():
    whole = episode(truncated=False)
    each = made()
    each([whole])
    later = SingleAgentEpisode(
        observations=whole.observations, actions=whole.actions, rewards=whole.rewards, truncated=True,
        id_="e", t_started=STEPS + 5,
    )  # fmt: skip
    assert len(each([later])["obs"]) == STEPS * (1 + COPIES)


def test_an_environment_may_take_one_goal_at_a_time_and_not_say_where_episodes_end():
    whole = episode()
    rows, expected = made(env=OneByOne)([whole]), made()([whole])
    np.testing.assert_array_equal(rows["rewards"], expected["rewards"])
    assert (expected["rewards"] == 0.0).sum() > STEPS
    assert not rows["terminateds"].any()


def config(env=BitFlip, **settings):
    given = {"hindsight": "future", "num_steps_sampled_before_learning_starts": 8, **settings}
    return (
        DQNConfig()
        .framework("numpy")
        .environment(env)
        .env_runners(rollout_fragment_length=8)
        .rl_module(model_config={"fcnet_hiddens": [2]})
        .training(train_batch_size=8, minibatch_size=8, **given)
        .debugging(seed=0)
    )


def test_a_resumed_run_draws_the_same_goals(tmp_path):
    one = config().build_algo()
    for _ in range(2):
        one.train()
    one.save_to_path(tmp_path / "saved")
    two = type(one).from_checkpoint(tmp_path / "saved", env=BitFlip)
    for each in (one, two):
        each.train()
    assert digest(one._training.get_state()) == digest(two._training.get_state())
    assert any(one._training.get_state()["default_policy"]["waiting"])
    drawn, _ = one._training._buffers["default_policy"].sample(200)
    assert (drawn["rewards"] == 0.0).mean() > 0.2  # a random run reaches its own goal far less often
    for each in (one, two):
        each.stop()


class WithoutRewards(BitFlip):
    @property
    def compute_reward(self):
        raise AttributeError


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("CartPole-v1", "hindsight needs observations that are a Dict of 'observation', 'achieved_goal'"),
        (WithoutRewards, r"an environment with compute_reward\(achieved_goal, desired_goal, info\)"),
    ],
)
def test_an_environment_without_goals_is_refused(env, words):
    with pytest.raises(ConfigError, match=words):
        config(env).build_algo()


@pytest.mark.parametrize(
    "settings", [{"n_step": 3}, {"normalize_observations": True}, {"normalize_rewards": True}]
)
def test_what_changes_rewards_or_goals_is_refused(settings):
    (name,) = settings
    given = config().env_runners(**settings) if name != "n_step" else config(**settings)
    with pytest.raises(ConfigError, match=f"set {name}="):
        given.validate()


def test_goals_of_two_shapes_are_refused():
    box, other = gym.spaces.Box(0, 1, (3,)), gym.spaces.Box(0, 1, (2,))
    space = gym.spaces.Dict({"observation": box, "achieved_goal": box, "desired_goal": other})
    with pytest.raises(ConfigError, match="goals that are Boxes of one shape"):
        HindsightTransitions("final", 1, space, lambda: None, GAMMA)
