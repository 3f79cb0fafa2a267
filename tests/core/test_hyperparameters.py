"""Whose hyperparameters a restored learner goes on with, and which plugins it says its checkpoint was written with."""

import logging
import re
import warnings

import gymnasium as gym
import numpy as np
import pytest
from learning import digest, ppo_batch, ppo_config, with_modules

from plugrad import DEFAULT_MODULE_ID, Learner, LearnerGroup, hookimpl
from plugrad.algorithm import Algorithm
from plugrad.checkpoint import load_checkpoint, save_checkpoint
from plugrad.errors import ConfigError, RestoreMismatchError

P = DEFAULT_MODULE_ID
TIMESTEP = "num_env_steps_sampled_lifetime"
THEIRS = {
    "lr": [[0, 0.1], [100, 0.02]],
    "clip_param": [[0, 0.3], [100, 0.1]],
    "optimizer": {"type": "adam", "eps": 1e-3},
    "use_kl_loss": True,
    "minibatch_size": 8,
    "num_epochs": 2,
}
OWN = {**THEIRS, "lr": [[0, 1.0], [100, 0.0]], "clip_param": 0.7, "optimizer": {"type": "adam", "eps": 1e-8}}


def built(settings, **more):
    learner = Learner(config=ppo_config(hiddens=(2,), **settings), **more)
    learner.build()
    return learner


def train(learner, *timesteps):
    for timestep in timesteps:
        learner.update(ppo_batch(seed=timestep), timesteps={TIMESTEP: timestep})


def rate(learner):
    return float(learner.get_state("optimizer")["optimizer"][f"{P}_default_optimizer"]["learning_rate"])


@pytest.fixture
def source(tmp_path):
    source = built(THEIRS)
    train(source, 25, 50)
    source.save_to_path(tmp_path / "c")
    return source


def test_a_checkpoint_brings_its_hyperparameters_and_the_log_says_so(source, tmp_path, caplog):
    other = built(OWN)
    train(other, 10)
    other.restore_from_path(tmp_path / "c")
    assert other.config == source.config
    assert "going on with the hyperparameters of the checkpoint" in caplog.text
    assert (
        "lr: [[0, 0.1], [100, 0.02]] in the checkpoint, [[0, 1.0], [100, 0.0]] in the config" in caplog.text
    )
    for learner in (source, other):
        train(learner, 75, 100)
    assert digest(other.get_state()) == digest(source.get_state())


def test_a_checkpoint_of_equal_hyperparameters_leaves_the_config_and_its_programs(source, tmp_path, caplog):
    before, optimizers = source.config, source.registered_optimizers
    source.restore_from_path(tmp_path / "c")
    assert source.config is before
    assert source.registered_optimizers is optimizers
    assert "going on with" not in caplog.text


def test_the_config_keeps_its_own_if_asked_and_the_log_says_so(source, tmp_path, caplog):
    other = built(OWN)
    train(other, 10)
    other.restore_from_path(tmp_path / "c", hyperparameters="config")
    assert "going on with the hyperparameters of the config" in caplog.text
    assert other.config.lr == OWN["lr"]
    assert rate(other) == pytest.approx(0.5), "the schedule of the config at timestep 50"
    state, saved = other.get_state(), source.get_state()
    assert state["coefficients"][P]["clip_param"] == np.float32(0.7)
    assert digest(state["rl_module"]) == digest(saved["rl_module"])
    assert digest(state["optimizer"][f"{P}_default_optimizer"]["slots"]) == digest(
        saved["optimizer"][f"{P}_default_optimizer"]["slots"]
    )
    assert digest({name: state[name] for name in ("counters", "streams")}) == digest(
        {name: saved[name] for name in ("counters", "streams")}
    )
    train(other, 75)
    assert rate(other) == pytest.approx(0.25)


def test_equal_hyperparameters_are_no_news_and_keep_what_was_compiled(source, tmp_path, caplog):
    other = built(THEIRS)
    programs = other._update_run
    other.restore_from_path(tmp_path / "c")
    assert other._update_run is programs
    assert not caplog.records


def test_a_part_brings_no_hyperparameters(source, tmp_path, caplog):
    other = built(OWN)
    other.restore_from_path(tmp_path / "c", component="rl_module")
    assert other.config.lr == OWN["lr"]
    assert not caplog.records


@pytest.mark.parametrize("whose", ["checkpoint", "config"])
def test_what_does_not_fit_changes_neither_state_nor_hyperparameters(source, tmp_path, whose):
    state = source.get_state()
    state["rl_module"][P].popitem()
    metadata = dict(load_checkpoint(tmp_path / "c").metadata)
    save_checkpoint(tmp_path / "damaged", state, metadata=metadata)
    other, same = built(OWN), built(OWN)
    with pytest.raises(RestoreMismatchError):
        other.restore_from_path(tmp_path / "damaged", hyperparameters=whose)
    assert digest(other.get_state()) == digest(same.get_state())
    assert other.config == same.config
    for learner in (other, same):
        train(learner, 10, 20)
    assert digest(other.get_state()) == digest(same.get_state())


def test_another_optimizer_of_the_config_is_refused_and_one_of_the_checkpoint_taken(source, tmp_path):
    other = built({**OWN, "optimizer": {"type": "sgd"}})
    before = digest(other.get_state())
    with pytest.raises(RestoreMismatchError, match="slots/v"):
        other.restore_from_path(tmp_path / "c", hyperparameters="config")
    assert digest(other.get_state()) == before
    other.restore_from_path(tmp_path / "c")
    assert digest(other.get_state()) == digest(source.get_state())


def test_there_is_nobody_else_to_take_them_from(source, tmp_path):
    with pytest.raises(ConfigError, match="hyperparameters='file': there is 'checkpoint' and 'config'"):
        source.restore_from_path(tmp_path / "c", hyperparameters="file")


# --- plugins ---


class Ear:
    @hookimpl
    def learner_built(self):
        """Listens."""


def edited(path, change):
    """The same checkpoint, with other plugins in what it says of itself."""
    checkpoint = load_checkpoint(path)
    metadata = dict(checkpoint.metadata)
    change(metadata["plugins"])
    save_checkpoint(path, checkpoint.state, metadata=metadata)


def test_a_checkpoint_names_backend_algorithm_and_plugins_with_their_distributions(tmp_path):
    built(OWN, plugins=[Ear()]).save_to_path(tmp_path)
    metadata = load_checkpoint(tmp_path).metadata
    assert (metadata["backend"], metadata["algorithm"]) == ("numpy", "ppo")
    found = {each["kind"]: each for each in metadata["plugins"]}
    assert found["algorithm"]["name"] == "ppo"
    assert found["algorithm"]["distribution"] == "plugrad"
    assert found["algorithm"]["version"]
    assert found["listener"] == {"kind": "listener", "name": "Ear", "distribution": None, "version": None}


def test_the_same_plugins_are_no_news(source, tmp_path):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        built(THEIRS).restore_from_path(tmp_path / "c")
    assert not said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda plugins: plugins.append(
                {"kind": "listener", "name": "shaper", "distribution": "plugrad-shaper", "version": "3"}
            ),
            r"listener 'shaper' \(plugrad-shaper 3\) was active and is not now",
        ),
        (
            lambda plugins: plugins[-1].update(version="0.0.1"),
            r"algorithm 'ppo' \(plugrad .*\) was of plugrad 0\.0\.1 then",
        ),
        (
            lambda plugins: plugins.pop(),
            r"algorithm 'ppo' \(plugrad .*\) is active and was not then",
        ),
    ],
)
def test_other_plugins_than_then_are_a_warning_and_no_more(source, tmp_path, change, words):
    edited(tmp_path / "c", change)
    other = built(THEIRS)
    with pytest.warns(UserWarning, match=words):
        other.restore_from_path(tmp_path / "c")
    assert digest(other.get_state()) == digest(source.get_state())


@pytest.mark.parametrize("door", ["learner", "built learner", "group", "algorithm"])
def test_the_warning_of_a_plugin_that_is_not_active_is_at_the_users_line_and_says_what_to_do(tmp_path, door):
    config = ppo_config(hiddens=(2,)).plugins(Ear).environment("CartPole-v1")
    config = config.environment(observation_space=None, action_space=None).training(train_batch_size=16)
    algorithm = config.env_runners(num_envs_per_env_runner=2).build_algo()
    algorithm.save_to_path(tmp_path / "all")
    algorithm.learner_group.save_to_path(tmp_path / "learner")
    algorithm.stop()
    learner = config.plugins().build_learner(env=gym.make("CartPole-v1"))
    open_ = {
        "learner": lambda: Learner.from_checkpoint(tmp_path / "all"),
        "built learner": lambda: learner.restore_from_path(tmp_path / "all"),
        "group": lambda: LearnerGroup.from_checkpoint(tmp_path / "learner").shutdown(),
        "algorithm": lambda: Algorithm.from_checkpoint(tmp_path / "all").stop(),
    }
    with pytest.warns(UserWarning, match=r"listener '.*Ear'") as said:
        open_[door]()
    (warning,) = said
    assert warning.filename == __file__
    remedy = r"was active and is not now\. .*\.plugins\(\.\.\.\).*restore_from_path"
    assert re.search(remedy, str(warning.message))


def test_a_checkpoint_without_a_warning_to_give_says_nothing_in_the_log(source, tmp_path, caplog):
    with caplog.at_level(logging.DEBUG):
        Learner.from_checkpoint(tmp_path / "c")
    assert not caplog.records


# --- what training adapted ---

ADAPTED = {**OWN, "lr": 0.01, "clip_param": 0.3, "use_kl_loss": True, "kl_target": 1e-6}


def adapted(tmp_path, *module_ids, **settings):
    """The checkpoint of a learner whose KL coefficient has grown, and the coefficients."""
    learner = with_modules(ppo_config(hiddens=(2,), **ADAPTED), *module_ids, **settings).build_learner()
    for seed in range(3):
        learner.update({module_id: ppo_batch(seed=seed) for module_id in module_ids})
    found = {module_id: learner.coefficients[module_id]["kl_coeff"].numpy() for module_id in module_ids}
    assert all(value > 0.5 for value in found.values())
    return learner.save_to_path(tmp_path / "c"), found


@pytest.mark.parametrize("changes", [{}, {"lr": 0.5}, {"clip_param": 0.1}])
def test_what_training_adapted_stays_where_the_configs_have_the_same_setting(changes, tmp_path):
    path, found = adapted(tmp_path, "a", "b")
    other = with_modules(ppo_config(hiddens=(2,), **{**ADAPTED, **changes}), "a", "b").build_learner()
    other.restore_from_path(path, hyperparameters="config")
    for module_id, value in found.items():
        assert other.coefficients[module_id]["kl_coeff"].numpy() == value
        expected = np.float32({**ADAPTED, **changes}["clip_param"])
        assert other.coefficients[module_id]["clip_param"].numpy() == expected
    assert other._get_optimizer_lr(other.get_optimizer("a")) == np.float32({**ADAPTED, **changes}["lr"])


def test_what_training_adapted_begins_anew_where_the_setting_is_another_one_and_the_log_says_so(
    tmp_path, caplog
):
    path, found = adapted(tmp_path, "a", "b")
    config = with_modules(ppo_config(hiddens=(2,), **ADAPTED), "a", "b")
    for changes, expected in (
        (config.training(kl_coeff=0.3), {"a": 0.3, "b": 0.3}),
        (config.rl_module(algorithm_config_overrides_per_module={"a": {"kl_coeff": 0.4}}), {"a": 0.4}),
    ):
        caplog.clear()
        other = changes.build_learner()
        other.restore_from_path(path, hyperparameters="config")
        for module_id, value in {**found, **expected}.items():
            assert other.coefficients[module_id]["kl_coeff"].numpy() == np.float32(value)
        assert "kl_coeff" in caplog.text


def test_a_schedule_of_the_config_moves_a_coefficient_whatever_was_adapted(tmp_path):
    path, _ = adapted(tmp_path, "a")
    scheduled = with_modules(
        ppo_config(hiddens=(2,), **{**ADAPTED, "clip_param": [[0, 0.3], [10, 0.1]]}), "a"
    )
    other = scheduled.build_learner()
    other.restore_from_path(path, hyperparameters="config")
    other.update({"a": ppo_batch()}, timesteps={TIMESTEP: 10})
    assert other.coefficients["a"]["clip_param"].numpy() == np.float32(0.1)
