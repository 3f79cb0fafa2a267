"""What is said before an update is part of it: metrics that are registered ahead, and rows that are rounded up."""

import numpy as np
import pytest
from learning import ppo_batch, ppo_config

from plugrad import ALL_MODULES, DEFAULT_MODULE_ID
from plugrad.errors import PlugradError
from plugrad_dqn import DQNConfig

P = DEFAULT_MODULE_ID


@pytest.fixture
def learner():
    return ppo_config(hiddens=(2,)).build_learner()


def test_a_metric_registered_before_an_update_is_in_its_results_and_in_no_later_ones(learner):
    learner.register_metric(P, "temperature", 0.5)
    learner.register_metric(ALL_MODULES, "histogram", np.arange(2))
    assert learner.metrics.peek((P, "temperature")) == 0.5
    results = learner.update(ppo_batch(seed=0))
    assert results[P]["temperature"] == 0.5
    assert results[P]["total_loss"] is not None
    assert results[ALL_MODULES]["histogram"].tolist() == [0, 1]
    later = learner.update(ppo_batch(seed=1))
    assert "temperature" not in later[P]
    learner.register_metric(P, "temperature", 0.25)  # between two updates
    assert learner.update(ppo_batch(seed=2))[P]["temperature"] == 0.25


def test_an_update_that_fails_leaves_the_metric_to_the_next_one(learner):
    learner.register_metric(P, "temperature", 0.5)
    bad = ppo_batch(seed=0)
    bad["obs"] = np.full_like(bad["obs"], np.nan)
    with pytest.raises(PlugradError):
        learner.update(bad)
    assert learner.update(ppo_batch(seed=0))[P]["temperature"] == 0.5


def test_a_metric_of_a_connector_piece_is_in_the_results():
    class Counts:
        def __call__(self, *, learner, batch, episodes):
            learner.register_metric(P, "episodes", len(episodes))
            return batch

    from plugrad import SingleAgentEpisode

    config = ppo_config(hiddens=(2,)).learners(learner_connector=lambda observations, actions: [Counts()])
    learner = config.build_learner()
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(4, *learner.module[P].observation_space.shape)).astype(np.float32)
    outputs = learner.compute_actions(observations[:-1])
    actions = outputs.pop("actions")
    episode = SingleAgentEpisode(
        observations=observations, actions=actions, rewards=np.ones(3), extra_model_outputs=outputs
    )
    assert learner.update(episodes=[episode])[P]["episodes"] == 1


@pytest.mark.parametrize(
    ("asked", "rows"), [(64, 64), (65, 128), (95, 128), (96, 128), (128, 128), (160, 192)]
)
def test_an_off_policy_batch_is_rounded_up_to_whole_minibatches_and_says_so(asked, rows, caplog):
    config = (
        DQNConfig()
        .framework("numpy")
        .environment("CartPole-v1")
        .rl_module(model_config={"fcnet_hiddens": [2]})
    )
    config = config.training(
        train_batch_size=asked, minibatch_size=64, num_steps_sampled_before_learning_starts=8
    )
    algorithm = config.debugging(seed=0).build_algo()
    said = [each.getMessage() for each in caplog.records if "train_batch_size" in each.getMessage()]
    expected = (
        f"train_batch_size={asked}, and an update is on {rows} rows: whole minibatches of minibatch_size=64"
    )
    assert said == ([] if asked == rows else [expected])
    results = algorithm.train()
    assert results["learners/default_policy/num_module_steps_trained"] == rows
    algorithm.stop()
