"""One run of `impala.py` with RLlib, in the peers' venv: ALGORITHM ENVIRONMENTS SECONDS."""

# mypy: disable-error-code="import-not-found"

import json
import sys
from time import perf_counter
from typing import Any

import ray
from impala import SETTINGS, WARM_UP
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

CONFIGS = {"impala": IMPALAConfig, "appo": APPOConfig}


def main() -> None:
    """Train for a while and print trained steps per second."""
    algorithm, envs, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    config = (
        CONFIGS[algorithm]()
        .environment("CartPole-v1")
        .env_runners(
            num_env_runners=SETTINGS["num_env_runners"],
            num_envs_per_env_runner=envs,
            rollout_fragment_length=SETTINGS["rollout_fragment_length"],
        )
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=SETTINGS["train_batch_size"])
        .reporting(min_time_s_per_iteration=1)
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=SETTINGS["hiddens"], vf_share_layers=algorithm == "impala"
            )
        )
        .debugging(seed=0)
    )
    run = config.build_algo()
    results = run.train()
    begun = perf_counter()
    while trained(results) is None or perf_counter() - begun < WARM_UP:
        results = run.train()
    begun, before = perf_counter(), trained(results)
    while perf_counter() - begun < seconds:
        results = run.train()
    rate = (trained(results) - before) / (perf_counter() - begun)
    returns = results["env_runners"].get("episode_return_mean")
    run.stop()
    print(json.dumps({"steps_per_second": rate, "return": returns}))


def trained(results: Any) -> Any:
    """Environment steps that updates learned from; None before the first one is reported."""
    return results.get("learners", {}).get("__all_modules__", {}).get("num_env_steps_trained_lifetime")


if __name__ == "__main__":
    main()
