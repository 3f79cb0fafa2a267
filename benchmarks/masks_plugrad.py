"""One run of plugrad's PPO on an environment of sb3-contrib: `python masks_plugrad.py BACKEND KIND PACKAGES SEED`.

PACKAGES is the folder of the peers' packages; one's own come first. The last line printed is JSON. Time is that of
training.
"""

import json
import sys
from time import perf_counter
from typing import Any

import masks
import numpy as np

from plugrad_ppo import PPOConfig


def main(backend: str, kind: str, packages: str, seed: str) -> None:
    """Train, and evaluate now and then."""
    sys.path.append(packages)
    from sb3_contrib.common import envs  # type: ignore[import-not-found]

    name, settings = masks.ENVIRONMENTS[kind]

    def make() -> Any:
        env = getattr(envs, name)(**settings)
        env.action_space.seed(int(seed))  # its observations are drawn from it
        return env

    np.random.seed(int(seed))
    config = (
        PPOConfig()
        .environment(make)
        .framework(backend)
        .rl_module(model_config={"fcnet_hiddens": masks.HIDDENS})
        .env_runners(num_envs_per_env_runner=1)
        .training(
            lr=masks.LR,
            gamma=masks.GAMMA,
            train_batch_size=masks.STEPS,
            minibatch_size=masks.BATCH_SIZE,
            num_epochs=masks.EPOCHS,
        )
        .debugging(seed=int(seed))
    )
    algorithm = config.build_algo()
    returns, seconds = [], 0.0
    for update in range(1, masks.EVALUATE_AFTER[-1] + 1):
        begin = perf_counter()
        algorithm.train()
        seconds += perf_counter() - begin
        if update in masks.EVALUATE_AFTER:
            returns.append(algorithm.evaluate(num_episodes=masks.EPISODES)["episode_return_mean"])
    algorithm.stop()
    print(json.dumps({"returns": returns, "seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
