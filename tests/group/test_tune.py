"""Ray Tune over an Algorithm: trials of a config, checkpoints through Tune, population-based training."""

import math
from pathlib import Path
from typing import Any

import needs
import pytest
from learning import quick_mode
from pages import assert_page_runs

from plugrad_ppo import PPOConfig

needs.extra("pandas")  # of the extra `tune`: Ray Tune does not import without it


def config_of(backend: str) -> PPOConfig:
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .framework(backend, compile=quick_mode(backend))
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .training(train_batch_size=64, num_epochs=1)
        .debugging(seed=0)
    )


def test_a_trial_goes_on_from_the_checkpoint_of_another_with_its_own_learning_rate(
    backend: str, tmp_path: Path
) -> None:
    from plugrad_rllib.tune import trainable

    PPO = trainable(config_of(backend))
    first, second = PPO({"lr": 0.01}), PPO({"lr": 0.02})
    try:
        assert PPO.__name__ == "PPO"
        result = first.train()  # as Tune's callbacks get it
        assert math.isnan(result["env_runners/episode_return_mean"]) or result["env_runners"]
        assert result["learners"]["default_policy"]["default_optimizer_learning_rate"] == pytest.approx(0.01)
        first.save(str(tmp_path))
        second.restore(str(tmp_path))
        weights = [each.algorithm.learner_group.get_weights()["default_policy"] for each in (first, second)]
        assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])
        result = second.train()
        assert result["training_iteration"] == 2
        assert result["learners/default_policy/default_optimizer_learning_rate"] == pytest.approx(0.02)
    finally:
        first.stop()
        second.stop()


def test_a_trial_asks_for_the_cpus_of_its_env_runners_and_learners() -> None:
    from plugrad_rllib.tune import trainable

    config = (
        config_of("torch").env_runners(num_env_runners=1).learners(num_learners=2, num_cpus_per_learner=3)
    )
    asked = trainable(config).default_resource_request({"num_env_runners": 2})
    assert [each["CPU"] for each in asked.bundles] == [3, 3, 3]


@needs.backends("torch")
def test_the_code_of_the_page_runs(cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two trials of population-based training, and their best checkpoint as an Algorithm."""
    monkeypatch.setenv("RAY_AIR_NEW_OUTPUT", "0")
    monkeypatch.chdir(tmp_path)
    assert_page_runs("ray-tune.md")


def test_whether_a_trial_has_reached_a_value_is_checked() -> None:
    from pandas import DataFrame
    from ray.tune import Result

    from plugrad_rllib.tune import check_learning_achieved

    frame = DataFrame({"env_runners/episode_return_mean": [1.0, 5.0, float("nan")]})
    grid: Any = [Result(metrics={}, checkpoint=None, error=None, path="", metrics_dataframe=frame)]
    check_learning_achieved(grid, 5.0)
    with pytest.raises(
        ValueError, match="reached env_runners/episode_return_mean=6: the best of 2 values is 5"
    ):
        check_learning_achieved(grid, 6.0)
    with pytest.raises(ValueError, match="reached evaluation/episode_return_mean=1: there is none"):
        check_learning_achieved(grid, 1.0, evaluation=True)
