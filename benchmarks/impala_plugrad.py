"""One run of `impala.py` with plugrad: ALGORITHM ENVIRONMENTS SECONDS BACKEND."""

import json
import sys
from time import perf_counter

from impala import SETTINGS, WARM_UP

from plugrad import get_algorithm

TRAINED = "learners/__all_modules__/num_env_steps_trained_lifetime"


def main() -> None:
    """Train for a while and print trained steps per second."""
    algorithm, envs, seconds, backend = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    config = (
        get_algorithm(algorithm)  # type: ignore[attr-defined]
        .rllib_defaults()
        .framework(backend)
        .environment("CartPole-v1")
        .env_runners(
            num_env_runners=SETTINGS["num_env_runners"],
            num_envs_per_env_runner=envs,
            rollout_fragment_length=SETTINGS["rollout_fragment_length"],
        )
        .training(train_batch_size=SETTINGS["train_batch_size"])
        .rl_module(
            model_config={"fcnet_hiddens": SETTINGS["hiddens"], "vf_share_layers": algorithm == "impala"}
        )
        .debugging(seed=0)
    )
    run = config.build_algo()
    results = run.train()
    begun = perf_counter()
    while perf_counter() - begun < WARM_UP:
        results = run.train()
    begun, before = perf_counter(), results[TRAINED]
    while perf_counter() - begun < seconds:
        results = run.train()
    rate = (results[TRAINED] - before) / (perf_counter() - begun)
    run.stop()
    staleness = results["env_runners/weights_staleness_mean"]
    returns = results["env_runners/episode_return_mean"]
    print(json.dumps({"steps_per_second": rate, "staleness": staleness, "return": returns}))


if __name__ == "__main__":
    main()
