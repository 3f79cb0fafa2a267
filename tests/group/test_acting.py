"""Acting uses the present weights, however they were trained; a resumed run draws what an uninterrupted one does."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plugrad import DEFAULT_MODULE_ID, Learner, RLModuleSpec
from plugrad.algorithm import Algorithm
from plugrad.training import ModuleResults, Training
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig

P = DEFAULT_MODULE_ID
BACKEND = "numpy"  # the way of weights and streams knows no backend, and this one starts fastest

NOISE = """
from plugrad import hookimpl


@hookimpl(wrapper=True)
def get_exploration_inputs(learner, module_id):
    inputs = yield
    return inputs + learner.stream(module_id, "noise").normal(size=inputs.shape).astype("float32")
"""


def small(config: Any, learners: int = 1, runners: int = 0) -> Any:
    return (
        config.environment("CartPole-v1")
        .framework(BACKEND)
        .rl_module(model_config={"fcnet_hiddens": [2]})
        .env_runners(num_envs_per_env_runner=2, num_env_runners=runners, rollout_fragment_length=8)
        .training(train_batch_size=16, minibatch_size=None, num_epochs=1, lr=0.5)
        .learners(num_learners=learners, num_cpus_per_learner=0.1, timeout_s=20, build_timeout_s=120)
        .debugging(seed=0)
    )


class OwnTraining(Training):
    """Trains with the learner group itself, as docs/hooks.md allows."""

    def training_step(self) -> ModuleResults:
        results: ModuleResults = self.algorithm.learner_group.update(episodes=self.algorithm.sample())[0]
        return results


def inputs_of(learner: Learner, observations: Any) -> Any:
    return learner.compute_actions(observations, explore=False)["action_dist_inputs"]


def check_is_present(algorithm: Algorithm) -> Any:
    """What env runners record and what policies answer is what the learners say now; returns what they say."""
    group = algorithm.learner_group
    for episode in algorithm.sample():
        expected = group.foreach_learner(inputs_of, episode.observations[:-1])[0]
        np.testing.assert_allclose(episode.extra_model_outputs["action_dist_inputs"], expected, atol=1e-5)
    rows = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    found: Any = group.foreach_learner(inputs_of, rows)[0]
    for policy in (algorithm.get_policy(), group.get_policy()):
        np.testing.assert_array_equal(policy.predict(rows)[0], found.argmax(-1))
    return found


def update_itself(learner: Learner, episodes: Any) -> Any:
    return learner.update(episodes=episodes)


def changed(weights: Mapping[str, Any]) -> dict[str, Any]:
    return {
        module_id: {name: 1.5 * each for name, each in arrays.items()}
        for module_id, arrays in weights.items()
    }


@pytest.mark.cross_product(part=2)
@pytest.mark.parametrize(("learners", "runners"), [(0, 0), (1, 0), (0, 1), (2, 1)])
def test_who_acts_follows_the_learners_however_they_changed(
    cluster: None, learners: int, runners: int
) -> None:
    algorithm: Algorithm = small(PPOConfig(), learners, runners).build_algo()
    group = algorithm.learner_group
    training = OwnTraining(algorithm)
    state = group.get_state()
    ways: dict[str, Any] = {
        "a training of one's own": training.training_step,
        "submit": lambda: group.submit(episodes=algorithm.sample()).result(60),
        "async_update": lambda: [
            algorithm.update(episodes=algorithm.sample(), async_update=True),
            group.get_state(),
        ],
        "set_weights": lambda: group.set_weights(changed(group.get_weights())),
        "set_state": lambda: group.set_state(state),
        "Algorithm.update": lambda: algorithm.update(episodes=algorithm.sample()),
        "add_module": lambda: [
            group.add_module(
                module_id="other", module_spec=RLModuleSpec(model_config={"fcnet_hiddens": [2]})
            ),
            group.set_weights(changed(group.get_weights([P]))),
        ],
        "remove_module": lambda: [
            group.remove_module("other"),
            group.set_weights(changed(group.get_weights())),
        ],
    }
    if learners < 2:  # each for itself
        ways["foreach_learner"] = lambda: group.foreach_learner(update_itself, algorithm.sample())
    before = check_is_present(algorithm)
    for way, change in ways.items():
        change()
        after = check_is_present(algorithm)
        assert np.abs(after - before).max() > 1e-6, way
        before = after
    algorithm.stop()


@pytest.mark.parametrize(("learners", "runners"), [(1, 0), (0, 1)])
def test_exploration_follows_its_schedule(cluster: None, learners: int, runners: int) -> None:
    """Epsilon 1 at first and 0 from the first update on: all actions are greedy then, wherever they are taken."""
    config = small(DQNConfig(), learners, runners).training(
        num_steps_sampled_before_learning_starts=1, epsilon=[[0, 1.0], [16, 0.0]], minibatch_size=16
    )
    algorithm: Algorithm = config.build_algo()
    algorithm.train()
    for episode in algorithm.sample():
        greedy, _ = algorithm.get_policy().predict(episode.observations[:-1])
        np.testing.assert_array_equal(episode.actions, greedy)
    algorithm.stop()


def test_updates_that_are_not_waited_for_return_the_results_of_earlier_ones(cluster: None) -> None:
    algorithm: Algorithm = small(PPOConfig()).build_algo()
    assert algorithm.update(episodes=algorithm.sample(), async_update=True) == []
    algorithm.learner_group.get_state()  # waits for it
    (results,) = algorithm.update(episodes=algorithm.sample(), async_update=True)
    assert results[P]["weights_seq_no"] == 1
    algorithm.stop()


def shuffling(observation_space: Any, action_space: Any) -> Any:
    """A connector that draws from a stream which acting draws from, too."""
    return draw


def draw(*, learner: Any, batch: Any, episodes: Any) -> Any:
    learner.counters["drawn"] = int(learner.stream(P, "noise").integers(1000))
    return batch


@pytest.mark.cross_product(part=2)
@pytest.mark.parametrize("kind", [PPOConfig, DQNConfig])
def test_a_resumed_run_on_remote_learners_is_the_straight_one(
    cluster: None, tmp_path: Path, kind: Any
) -> None:
    listener = tmp_path / "noise.py"
    listener.write_text(NOISE)
    config = small(kind()).plugins(str(listener)).learners(learner_connector=shuffling)
    if kind is DQNConfig:
        config = config.training(num_steps_sampled_before_learning_starts=1, epsilon=0.5, minibatch_size=16)
    straight: Algorithm = config.build_algo()
    straight.train()
    straight.train()
    straight.save_to_path(tmp_path / "saved")
    expected = [told(straight) for _ in range(2)]
    straight.stop()
    resumed: Algorithm = config.build_algo()
    resumed.restore_from_path(tmp_path / "saved")
    resumed.save_to_path(tmp_path / "again")  # what was not drawn since is kept, too
    found = [told(resumed)]
    resumed.restore_from_path(tmp_path / "again")
    found = [told(resumed) for _ in range(2)]
    resumed.stop()
    for one, other in zip(found, expected, strict=True):
        assert one[0] == other[0]
        assert one[1:] == other[1:]


def told(algorithm: Algorithm) -> Any:
    """What one iteration comes to, and what would be sampled next."""
    results = algorithm.train()
    learned = {key: results[key] for key in results if key.startswith("learners/") and "time" not in key}
    return (
        learned,
        actions(algorithm),
        algorithm.learner_group.get_state()["learner"]["counters"].get("drawn"),
    )


def actions(algorithm: Algorithm) -> Any:
    return [episode.actions.tolist() for episode in algorithm.sample()]


def test_remote_env_runners_count_the_parts_that_are_normalised(cluster: None) -> None:
    config = (
        small(PPOConfig(), runners=1).environment("Blackjack-v1").env_runners(normalize_observations=True)
    )
    algorithm = config.build_algo()
    try:
        rows = np.concatenate([episode.observations for episode in algorithm.sample()])
        assert set(np.unique(rows)) == {0.0, 1.0}  # one-hot parts stay as they are
        assert algorithm.env_runner.normalizer.mean.shape == (0,)
        assert algorithm.env_runner.normalizer.count > 16
    finally:
        algorithm.stop()
