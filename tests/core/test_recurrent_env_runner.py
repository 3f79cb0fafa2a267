"""The env runner carries the state of a stateful policy: each step's is recorded, each episode begins anew."""

import counting
import numpy as np
import pytest
from sampling import Sampling

from plugrad.sampling.env_runner import EnvRunner
from plugrad.sampling.evaluation import evaluate


def counts_steps(observations, state):
    """Remembers how often it was called since it began, and the key of the episode that it saw first."""
    first = state["count"] == 0
    key = np.where(first, observations[:, 0], state["key"])
    return {**counting.policy(observations), "state_out": {"count": state["count"] + 1, "key": key}}


INITIAL = {"count": np.zeros((), np.int64), "key": np.zeros(())}


def make_runner(seed=0, **settings):
    config = Sampling(**settings)
    return EnvRunner(config=config, act=counts_steps, initial_state=INITIAL, seed=seed)


def assert_remembers(chunk):
    recorded = chunk.extra_model_outputs
    np.testing.assert_array_equal(recorded["state_in/count"], chunk.observations[:-1, 1])
    later = chunk.observations[:-1, 1] > 0
    np.testing.assert_array_equal(recorded["state_in/key"][later], chunk.observations[:-1, 0][later])
    assert "state_out" not in recorded


@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_every_step_is_taken_in_the_state_that_the_one_before_left(mode):
    runner = make_runner(vectorization_mode=mode)
    for num_steps in (1, 40, 7, 30):
        chunks = runner.sample(num_steps)
        assert chunks
        for chunk in chunks:
            assert_remembers(chunk)


def test_a_policy_may_give_its_states_in_the_same_array_again():
    states = {"count": np.zeros(2, np.int64), "key": np.zeros(2)}

    def counts_in_place(observations, state):
        columns = counts_steps(observations, state)
        for name, after in columns["state_out"].items():
            states[name][...] = after
        return {**columns, "state_out": states}

    config = Sampling(num_envs_per_env_runner=2)
    for chunk in EnvRunner(config=config, act=counts_in_place, initial_state=INITIAL, seed=0).sample(20):
        assert_remembers(chunk)


def test_a_reset_begins_anew():
    runner = make_runner()
    runner.sample(5)
    runner.reset(1)
    for chunk in runner.sample(20):
        assert_remembers(chunk)


def test_a_resumed_runner_remembers():
    whole = make_runner()
    whole.sample(25)
    resumed = make_runner()
    resumed.set_state(whole.get_state())
    for one, other in zip(whole.sample(30), resumed.sample(30), strict=True):
        assert_remembers(other)
        for name, values in one.extra_model_outputs.items():
            np.testing.assert_array_equal(values, other.extra_model_outputs[name])


def test_an_episode_that_does_not_repeat_itself_begins_with_a_new_state():
    config = Sampling(env=counting.UnrepeatableEnv)
    runners = [EnvRunner(config=config, act=counts_steps, initial_state=INITIAL, seed=0) for _ in range(2)]
    runners[0].sample(5)
    with pytest.warns(UserWarning, match="did not repeat"):
        runners[1].set_state(runners[0].get_state())
    for chunk in runners[1].sample(20):
        assert_remembers(chunk)


def test_evaluation_carries_it_too():
    seen = []

    def act(observations, state):
        seen.append((observations[:, 1].copy(), state["count"].copy()))
        return counts_steps(observations, state)

    runner = EnvRunner(config=Sampling(), act=act, initial_state=INITIAL)
    evaluate(runner, num_episodes=10, seed=1)
    assert len(seen) > 10
    for steps, counts in seen:
        np.testing.assert_array_equal(steps, counts)


@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_a_function_says_in_which_state_episodes_begin_that_begin_now(mode):
    weights = [0]

    def act(observations, state):
        return {**counting.policy(observations), "state_out": state}

    config = Sampling(vectorization_mode=mode)
    runner = EnvRunner(config=config, act=act, initial_state=lambda: {"w": np.array(weights[0])}, seed=0)
    for now in range(1, 20):
        weights[0] = now
        begun = [each for each in runner.sample(4) if each.t_started == 0]
        # An episode that ended with the last sample was followed by the next one at once.
        assert {int(each.extra_model_outputs["state_in/w"][0]) for each in begun} <= {now - 1, now}
    weights[0] = 100
    runner.reset(1)
    assert {int(each.extra_model_outputs["state_in/w"][0]) for each in runner.sample(4)} == {100}


def test_a_policy_goes_on_from_the_state_that_it_has_after_random_actions():
    runner = make_runner()
    for is_random in (True, False, True, False):
        for chunk in runner.sample(7, random_actions=is_random):
            assert_remembers(chunk)
            assert ("action_logp" in chunk.extra_model_outputs) is not is_random
