"""PQN: Q(lambda) targets and the loss by hand, masks, what it has not, what is refused, a falling epsilon."""

import gymnasium as gym
import numpy as np
import pytest
from learning import OBSERVATIONS, TWO_ACTIONS, digest, ppo_batch

from plugrad import DEFAULT_MODULE_ID, Columns, SingleAgentEpisode
from plugrad.errors import BatchError, ConfigError
from plugrad_pqn import PQNConfig

P = DEFAULT_MODULE_ID
GAMMA, LAMBDA = 0.9, 0.6
ENDS = {"terminated": {"terminated": True}, "truncated": {"truncated": True}, "goes on": {}}


def config(**training):
    return (
        PQNConfig()
        .framework("numpy")
        .environment(observation_space=OBSERVATIONS, action_space=TWO_ACTIONS)
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .training(**{"minibatch_size": None, "num_epochs": 1, "gamma": GAMMA, "lambda_": LAMBDA, **training})
        .debugging(seed=1)
    )


def episode(steps, *, masks=None, **end):
    rng = np.random.default_rng(steps)
    return SingleAgentEpisode(
        observations=rng.normal(size=(steps + 1, 3)).astype(np.float32),
        actions=rng.integers(2, size=steps),
        rewards=rng.normal(size=steps),
        extra_model_outputs={} if masks is None else {Columns.NEXT_ACTION_MASK: masks},
        **end,
    )


def q_values(learner, obs):
    return np.asarray(learner.module[P].forward_train({Columns.OBS: obs})["qf_preds"])


def targets_by_hand(learner, one):
    """The paper's recursion, step by step from the end of one episode."""
    q, found = q_values(learner, one.observations), np.zeros(len(one))
    for t in reversed(range(len(one))):
        allowed = one.extra_model_outputs.get(Columns.NEXT_ACTION_MASK, np.ones((len(one), 2), bool))[t]
        best = q[t + 1][allowed].max()
        if t == len(one) - 1:
            later = 0.0 if one.terminated else best
        else:
            later = (1.0 - LAMBDA) * best + LAMBDA * found[t + 1]
        found[t] = one.rewards[t] + GAMMA * later
    return found


@pytest.mark.parametrize("masked", [False, True], ids=["all actions", "some forbidden"])
@pytest.mark.parametrize("end", ENDS)
def test_targets_are_those_of_the_paper_for_each_episode(end, masked):
    learner = config().build_learner()
    only = np.tile([[False, True]], (4, 1)) if masked else None
    more = np.array([[True, False], [False, True]]) if masked else None
    episodes = [episode(4, masks=only, **ENDS[end]), episode(2, masks=more)]
    found = learner.run_connectors(episodes)[P]
    expected = np.concatenate([targets_by_hand(learner, each) for each in episodes])
    assert found[Columns.VALUE_TARGETS].dtype == np.float32
    np.testing.assert_allclose(found[Columns.VALUE_TARGETS], expected, rtol=1e-5, atol=1e-6)


def test_the_loss_is_half_the_squared_error_and_targets_do_not_move_within_an_update():
    learner, episodes = config().build_learner(), [episode(5, terminated=True), episode(3)]
    wanted = np.concatenate([targets_by_hand(learner, each) for each in episodes])
    obs = np.concatenate([each.observations[:-1] for each in episodes])
    actions = np.concatenate([each.actions for each in episodes])
    errors = q_values(learner, obs)[np.arange(8), actions] - wanted
    results = learner.update(episodes=episodes)[P]
    assert results["total_loss"] == pytest.approx(np.mean(0.5 * errors**2), rel=1e-4)
    assert results["td_error_mean_abs"] == pytest.approx(np.abs(errors).mean(), rel=1e-4)

    by_rows, by_episodes = config(num_epochs=3).build_learner(), config(num_epochs=3).build_learner()
    rows = by_rows.run_connectors(episodes)[P]
    by_rows.update({name: rows[name] for name in (Columns.OBS, Columns.ACTIONS, Columns.VALUE_TARGETS)})
    by_episodes.update(episodes=episodes)
    assert digest(by_rows.get_weights()) == digest(by_episodes.get_weights())


def test_its_network_has_layer_norms_and_no_target():
    learner = config().build_learner()
    assert list(learner.get_weights()[P]) == [
        *("encoder.0.weight", "encoder.0.bias", "encoder.0.norm.weight", "encoder.0.norm.bias"),
        *("q.out.weight", "q.out.bias"),
    ]
    assert not learner.targets


def test_what_would_broadcast_or_is_not_supported_is_refused():
    learner = config().build_learner()
    before = digest(learner.get_state())
    rows = {Columns.OBS: ppo_batch(8)[Columns.OBS], Columns.ACTIONS: np.zeros(8, np.int64)}
    with pytest.raises(BatchError, match=r"'value_targets': expected one number per row, shape \[8\]"):
        learner.update({**rows, Columns.VALUE_TARGETS: np.zeros((8, 1), np.float32)})
    assert digest(learner.get_state()) == before
    with pytest.raises(ConfigError, match="PQN needs a Discrete action space"):
        config().environment(action_space=gym.spaces.Box(-1.0, 1.0, (2,), np.float32)).build_learner()
    with pytest.raises(ConfigError, match="PQN"):
        config().rl_module(model_config={"use_lstm": True}).build_learner()


def test_each_iteration_learns_from_all_environments_and_epsilon_falls():
    chosen = config(train_batch_size=64, epsilon=[[0, 1.0], [128, 0.1]])
    chosen = chosen.environment("CartPole-v1", observation_space=None, action_space=None)
    algorithm = chosen.env_runners(num_envs_per_env_runner=8).build_algo()
    found = [algorithm.train() for _ in range(3)]
    assert [each["num_env_steps_sampled_lifetime"] for each in found] == [64, 128, 192]
    assert [each["learners/default_policy/epsilon"] for each in found] == pytest.approx([0.55, 0.1, 0.1])
    algorithm.stop()
