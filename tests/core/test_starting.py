"""A run starts from the weights of another one: what fits is loaded, and what is left is listed."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tiny_runs import TINY, plugrad, tiny_run

from plugrad import DEFAULT_MODULE_ID
from plugrad.algorithm import Algorithm
from plugrad.errors import RestoreMismatchError
from plugrad.learner.learner import Learner
from plugrad_bc import BCConfig
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig

ENV = gym.make("Pendulum-v1")
ENV.observation_space.seed(0)
SEEN = ENV.observation_space.sample()


def settings(config: Any, seed: int, **model: Any) -> Any:
    config = config.framework("numpy").debugging(seed=seed)
    return config.rl_module(model_config={"fcnet_hiddens": [4], "fcnet_activation": "tanh", **model})


def cloned(path: Path, **model: Any) -> Learner:
    """A saved learner of BC, whose policy has weights of its own seed."""
    config = settings(BCConfig(), 1, **model)
    spaces = {"observation_space": ENV.observation_space, "action_space": ENV.action_space}
    learner: Learner = config.environment(**spaces).build_learner()
    learner.save_to_path(path)
    return learner


def fresh(config: Any, **model: Any) -> Algorithm:
    config = settings(config.environment("Pendulum-v1"), 0, **model)
    algorithm: Algorithm = config.training(train_batch_size=8, minibatch_size=8).build_algo()
    return algorithm


def weights(one: Any) -> dict[str, Any]:
    found: dict[str, Any] = one.get_weights()[DEFAULT_MODULE_ID]
    return found


def test_ppo_starts_from_a_cloned_policy_and_names_the_value_network_that_it_leaves(tmp_path: Path) -> None:
    source, algorithm = cloned(tmp_path / "bc"), fresh(PPOConfig())
    before = weights(algorithm.learner_group)
    started = algorithm.start_from_path(tmp_path / "bc")
    after, theirs = weights(algorithm.learner_group), weights(source)
    assert started.loaded == tuple(f"{DEFAULT_MODULE_ID}/{name}" for name in theirs)
    assert started.left == tuple(f"{DEFAULT_MODULE_ID}/{n}" for n in after if n.startswith("vf"))
    assert started.unused == ()
    for name, each in after.items():
        np.testing.assert_array_equal(each, theirs[name] if name in theirs else before[name])
    assert "default_policy/vf.out.weight" in str(started)
    expected = source.get_policy().predict(SEEN)[0]
    np.testing.assert_array_equal(algorithm.get_policy().predict(SEEN)[0], expected)
    assert "learners/default_policy/total_loss" in algorithm.train()
    algorithm.stop()


def test_sac_starts_from_a_cloned_policy_of_squashed_actions(tmp_path: Path) -> None:
    source, algorithm = cloned(tmp_path / "bc", squash_actions=True), fresh(SACConfig())
    started = algorithm.start_from_path(tmp_path / "bc")
    assert {each.partition("/")[2].partition(".")[0] for each in started.left} == {"qf", "log_alpha"}
    expected = source.get_policy().predict(SEEN)[0]
    np.testing.assert_allclose(algorithm.get_policy().predict(SEEN)[0], expected, rtol=1e-6)
    assert abs(float(expected[0])) > 1e-4
    algorithm.stop()


def test_a_head_whose_outputs_mean_other_numbers_is_left(tmp_path: Path) -> None:
    """A Gaussian's means are actions, a squashed Gaussian's are not; their shapes are equal."""
    source, algorithm = cloned(tmp_path / "bc", free_log_std=False), fresh(SACConfig())
    before = weights(algorithm.learner_group)
    started = algorithm.start_from_path(tmp_path / "bc")
    after = weights(algorithm.learner_group)
    assert set(started.unused) == {f"{DEFAULT_MODULE_ID}/pi.out.{each}" for each in ("weight", "bias")}
    assert set(started.unused) <= set(started.left)
    np.testing.assert_array_equal(after["pi.out.weight"], before["pi.out.weight"])
    np.testing.assert_array_equal(after["pi.0.weight"], weights(source)["pi.0.weight"])
    algorithm.stop()


def test_parameters_of_other_shapes_are_told_with_both(tmp_path: Path) -> None:
    """Of layers of other widths the last bias alone fits."""
    cloned(tmp_path / "bc", squash_actions=True, fcnet_hiddens=[3])
    algorithm = fresh(SACConfig())
    started = algorithm.start_from_path(tmp_path / "bc")
    algorithm.stop()
    assert started.loaded == (f"{DEFAULT_MODULE_ID}/pi.out.bias",)
    assert started.differing[f"{DEFAULT_MODULE_ID}/pi.0.bias"] == ((4,), (3,))
    assert "pi.0.bias, here [4], there [3]" in str(started)
    assert "same widths: .rl_module(model_config={'fcnet_hiddens': [...]})" in str(started)


def test_target_networks_follow(tmp_path: Path) -> None:
    source = fresh(SACConfig())
    source.save_to_path(tmp_path / "sac")
    algorithm = fresh(SACConfig().training(gamma=0.5))
    moved = algorithm.learner_group.get_weights()
    moved[DEFAULT_MODULE_ID] = {name: each + 1.0 for name, each in moved[DEFAULT_MODULE_ID].items()}
    algorithm.learner_group.set_weights(moved)
    started = algorithm.start_from_path(tmp_path / "sac")
    assert started.left == started.unused == ()
    state, theirs = (each.learner_group.get_state("targets")["learner"] for each in (algorithm, source))
    found, expected = state["targets"][DEFAULT_MODULE_ID], theirs["targets"][DEFAULT_MODULE_ID]
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6)
    algorithm.stop()
    source.stop()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"fcnet_activation": "relu"}, r"set .rl_module\(model_config=\{'fcnet_activation': 'relu'\}\)"),
        (
            {"fcnet_hiddens": [3], "free_log_std": False},
            r"no weights .*pi.0.weight, here \[.*\], there \[3, 3\].*same widths: .rl_module\(model_config=",
        ),
    ],
)
def test_weights_that_mean_something_else_are_refused_and_nothing_changes(
    model: dict[str, Any], words: str, tmp_path: Path
) -> None:
    cloned(tmp_path / "bc", **model)
    algorithm = fresh(PPOConfig())
    before = weights(algorithm.learner_group)
    with pytest.raises(RestoreMismatchError, match=words):
        algorithm.start_from_path(tmp_path / "bc")
    after = weights(algorithm.learner_group)
    assert all(np.array_equal(each, before[name]) for name, each in after.items())
    algorithm.stop()


def test_statistics_of_observations_come_along_or_are_missed(tmp_path: Path) -> None:
    source = fresh(PPOConfig().env_runners(normalize_observations=True))
    source.sample()
    source.save_to_path(tmp_path / "ppo")
    algorithm = fresh(PPOConfig().env_runners(normalize_observations=True))
    started = algorithm.start_from_path(tmp_path / "ppo")
    assert started.statistics == (DEFAULT_MODULE_ID,)
    expected = source.get_policy().predict(SEEN)[0]
    np.testing.assert_array_equal(algorithm.get_policy().predict(SEEN)[0], expected)
    plain = fresh(PPOConfig())
    with pytest.raises(RestoreMismatchError, match="normalize_observations"):
        plain.start_from_path(tmp_path / "ppo")
    for each in (source, algorithm, plain):
        each.stop()


def test_the_command_line_starts_a_run_from_another_and_prints_what_is_left(tmp_path: Path) -> None:
    first = tiny_run(tmp_path / "first", "--stop-timesteps=16")
    command = ("train", "ppo", *TINY, "--quiet", "--stop-timesteps=16", "--seed=3")
    done = plugrad(*command, "--out", tmp_path / "second", "--init", first, code=0)
    assert "started from" in done.stderr
    assert "weights are loaded" in done.stderr
    assert "as they were here" not in done.stderr
    for more in (("--resume", first), ("--seeds=2",)):
        refused = plugrad("train", "ppo", "--init", first, *more, code=2)
        assert "--init" in refused.stderr
