"""What a load of weights alone leaves behind: target networks follow, and statistics are carried or named."""

import logging
import warnings

import gymnasium as gym
import numpy as np
import pytest
from learning import OBSERVATIONS

from plugrad import DEFAULT_MODULE_ID
from plugrad.errors import RestoreMismatchError
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig

P = DEFAULT_MODULE_ID
CONFIGS = {
    "dqn": (DQNConfig, gym.spaces.Discrete(3)),
    "sac": (SACConfig, gym.spaces.Box(-1.0, 1.0, (2,), np.float32)),
}


def learner_of(kind, seed=0, backend="numpy"):
    config, space = CONFIGS[kind]
    return (
        config()
        .framework(backend, compile="none")
        .environment(observation_space=OBSERVATIONS, action_space=space)
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .training(minibatch_size=None)
        .debugging(seed=seed)
        .build_learner()
    )


def transitions(kind, rows=8, seed=0):
    rng, space = np.random.default_rng(seed), CONFIGS[kind][1]
    space.seed(seed)
    return {
        "obs": rng.normal(size=(rows, 3)).astype(np.float32),
        "new_obs": rng.normal(size=(rows, 3)).astype(np.float32),
        "actions": np.array([space.sample() for _ in range(rows)]),
        "rewards": rng.normal(size=rows).astype(np.float32),
        "terminateds": np.zeros(rows, bool),
        "truncateds": np.zeros(rows, bool),
    }


def trained(kind):
    """Whose target network is not equal to its weights."""
    learner = learner_of(kind)
    for seed in range(3):
        learner.update(transitions(kind, seed=seed))
    return learner


def is_target(learner, weights):
    """Whether the target network has these weights, as the state of the learner says."""
    target = learner.get_state("targets")["targets"][P]
    found = {name: each for name, each in target.items() if name in weights}
    return bool(found) and all(np.array_equal(each, weights[name]) for name, each in found.items())


LOADS = {
    "set_weights": lambda learner, source, path: learner.set_weights(source.get_weights()),
    "set_state": lambda learner, source, path: learner.set_state(source.get_state("rl_module")),
    "component": lambda learner, source, path: learner.restore_from_path(path, component="rl_module"),
    "one module": lambda learner, source, path: learner.restore_from_path(path, component=f"rl_module/{P}"),
    "weights and optimizers": lambda learner, source, path: learner.set_state(
        source.get_state(["rl_module", "optimizer", "coefficients"])
    ),
    "the module's own door": lambda learner, source, path: learner.module[P].restore_from_path(path),
    "all modules' door": lambda learner, source, path: learner.module.restore_from_path(path),
    "the module's state": lambda learner, source, path: learner.module[P].set_state(source.get_weights()[P]),
}


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("kind", CONFIGS)
def test_target_networks_follow_weights_that_are_loaded_without_them(kind, load, tmp_path, caplog):
    source, learner = trained(kind), learner_of(kind, seed=9)
    source.save_to_path(tmp_path)
    with caplog.at_level(logging.INFO, "plugrad"):
        LOADS[load](learner, source, tmp_path)
        assert is_target(learner, source.get_weights()[P])
    assert sum("follows the weights that were loaded" in each.message for each in caplog.records) == 1


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_next_update_reads_the_targets_that_followed(kind):
    """The state need not be looked at first."""
    source, learner, other = trained(kind), learner_of(kind, seed=9), learner_of(kind, seed=9)
    for each in (learner, other):
        each.module[P].set_state(source.get_weights()[P])
    _ = other.get_state()
    rows = transitions(kind, seed=7)
    assert learner.update(rows)[P]["total_loss"] == other.update(rows)[P]["total_loss"]
    fresh = learner_of(kind, seed=9)
    fresh.set_weights(source.get_weights())
    assert fresh.update(rows)[P]["total_loss"] == other.metrics.results[P]["total_loss"]


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("components", [None, ["rl_module", "targets"]])
def test_targets_that_are_loaded_are_those_of_the_state(kind, components):
    source, learner = trained(kind), learner_of(kind, seed=9)
    learner.set_state(source.get_state(components))
    assert not is_target(learner, source.get_weights()[P])
    for name, each in source.get_state("targets")["targets"][P].items():
        np.testing.assert_array_equal(learner.get_state("targets")["targets"][P][name], each)


def test_an_undone_load_leaves_the_targets():
    source, learner = trained("dqn"), trained("dqn")
    before = learner.get_state("targets")["targets"][P]

    class Broken(Exception):
        pass

    def load_and_fail(*, timesteps):
        learner.module[P].set_state(learner_of("dqn", seed=9).get_weights()[P])
        raise Broken

    learner.after_gradient_based_update = load_and_fail
    with pytest.raises(Broken):
        learner.update(transitions("dqn"))
    del learner.after_gradient_based_update
    assert not is_target(learner, source.get_weights()[P])
    for name, each in learner.get_state("targets")["targets"][P].items():
        np.testing.assert_array_equal(each, before[name])


# --- the statistics of normalize_observations, without which weights act otherwise ---

OBS = np.float32([0.5, -1.0, 0.02, 2.0])


def algorithm(seed=0, normalized=True, **runners):
    return (
        PPOConfig()
        .framework("numpy")
        .environment("CartPole-v1")
        .env_runners(normalize_observations=normalized, normalize_rewards=normalized, **runners)
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .training(train_batch_size=32)
        .debugging(seed=seed)
        .build_algo()
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run with statistics, and its checkpoint."""
    run = algorithm()
    run.sample(64)
    yield run, run.save_to_path(tmp_path_factory.mktemp("source"))
    run.stop()


def acts_as(run, other):
    """Whether both see and compute the same: the inputs of the distribution of an observation of the environment."""
    found = [
        each._learner.compute_actions(each.env_runner.normalizer.normalize(OBS[None]), explore=False)
        for each in (run, other)
    ]
    return np.array_equal(*(each["action_dist_inputs"] for each in found))


def test_a_component_of_an_algorithm_brings_weights_with_their_statistics(source):
    run, path = source
    for component in ("rl_module", f"rl_module/{P}"):
        other = algorithm(seed=9)
        assert not acts_as(other, run)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            other.restore_from_path(path, component=component)
        assert acts_as(other, run)
        assert other.iteration == 0
        other.stop()


def test_set_weights_warns_of_statistics_and_set_statistics_carries_them(source):
    run, path = source
    other = algorithm(seed=9)
    with pytest.warns(UserWarning, match=r"statistics of observations stay as they are.*set_statistics"):
        other.learner_group.set_weights(run.learner_group.get_weights())
    assert not acts_as(other, run)
    other.set_statistics(run.get_statistics())
    assert acts_as(other, run)
    for name, each in run.get_statistics()["rewards"].items():
        np.testing.assert_array_equal(other.get_statistics()["rewards"][name], each)
    for load in (
        lambda group: group.set_state(run.learner_group.get_state("rl_module")),
        lambda group: group.restore_from_path(path, component=f"rl_module/{P}"),
        lambda group: group.restore_from_path(path),
    ):
        with pytest.warns(UserWarning, match="statistics of observations stay as they are"):
            load(other.learner_group)
    other.stop()


def test_weights_of_a_learner_alone_name_the_statistics_that_are_missing(source, tmp_path):
    run, _ = source
    run.learner_group.save_to_path(tmp_path)
    other = algorithm(seed=9)
    with pytest.warns(UserWarning, match=rf"has no statistics of normalize_observations of {P}"):
        other.restore_from_path(tmp_path, component="rl_module")
    assert not acts_as(other, run)
    other.stop()


def test_weights_that_were_trained_with_other_numbers_are_refused(source, tmp_path):
    run, path = source
    plain = algorithm(seed=9, normalized=False)
    before = plain.learner_group.get_weights()[P]
    with pytest.raises(
        RestoreMismatchError, match=r"nothing here that has them: normalize_observations=False"
    ):
        plain.restore_from_path(path, component="rl_module")
    for name, each in plain.learner_group.get_weights()[P].items():
        np.testing.assert_array_equal(each, before[name])
    plain.save_to_path(tmp_path)
    before = run.learner_group.get_weights()[P]
    with pytest.raises(RestoreMismatchError, match="is of a run without normalize_observations"):
        run.restore_from_path(tmp_path, component="rl_module")
    for name, each in run.learner_group.get_weights()[P].items():
        np.testing.assert_array_equal(each, before[name])
    plain.stop()


def test_statistics_that_do_not_fit_change_nothing(source):
    run, _ = source
    before = run.get_statistics()
    good = {"count": 3, "mean": np.zeros(4), "m2": np.ones(4)}
    for bad in (
        {"observations": {P: good, "stranger": good}},
        {"observations": {P: {**good, "mean": np.zeros(3)}}},
        {"observations": {P: good}, "rewards": {**good, "count": -1}},
    ):
        with pytest.raises(RestoreMismatchError):
            run.set_statistics(bad)
        np.testing.assert_array_equal(
            run.get_statistics()["observations"][P]["mean"], before["observations"][P]["mean"]
        )


def test_other_components_bring_no_statistics(source):
    _, path = source
    other = algorithm(seed=9)
    before = other.get_statistics()["observations"][P]["count"]
    other.restore_from_path(path, component="optimizer")
    assert other.get_statistics()["observations"][P]["count"] == before
    other.stop()
