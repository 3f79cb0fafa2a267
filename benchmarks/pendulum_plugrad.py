"""One run of plugrad on Pendulum: `python pendulum_plugrad.py BACKEND COMPILE MODE NUM_ENVS SEED`.

MODE is how environments step: `sync` (Gymnasium's own), or `vector_entry_point` (`pendulum_env.ArrayPendulum`). A
batch has 4096 steps, whatever NUM_ENVS. The last line printed is JSON. Time starts just before the algorithm is built,
and excludes the episodes that are evaluated at the end.
"""

import json
import math
import sys

from contestant_plugrad import use_one_thread
from pendulum import (
    BATCH,
    CLIP,
    EPOCHS,
    EVALUATION_EPISODES,
    GAMMA,
    HIDDENS,
    INITIAL_STD,
    ITERATIONS,
    LAMBDA,
    LR,
    MINIBATCH,
)
from stopwatch import Stopwatch

from plugrad_ppo import PPOConfig


def make_config(backend: str, compile_: str, mode: str, num_envs: int, seed: int) -> PPOConfig:
    """RLtools' settings. Its networks begin as torch's do."""
    return (
        PPOConfig()
        .environment("pendulum_env:ArrayPendulum-v0")
        .framework(backend, compile=compile_)
        .env_runners(num_envs_per_env_runner=num_envs, vectorization_mode=mode, normalize_observations=True)
        .training(
            train_batch_size=BATCH,
            minibatch_size=MINIBATCH,
            num_epochs=EPOCHS,
            lr=LR,
            gamma=GAMMA,
            lambda_=LAMBDA,
            clip_param=CLIP,
            grad_clip=None,
        )
        .rl_module(
            model_config={
                "fcnet_hiddens": HIDDENS,
                "fcnet_activation": "relu",
                "ortho_init": False,
                "log_std_init": math.log(INITIAL_STD),
            }
        )
        .debugging(seed=seed)
    )


def main(backend: str, compile_: str, mode: str, num_envs: str, seed: str) -> None:
    use_one_thread(backend)
    __import__(f"plugrad_{backend}")  # imports are not timed
    watch = Stopwatch()
    algorithm = make_config(backend, compile_, mode, int(num_envs), int(seed)).build_algo()
    stages = {"sample": 0.0, "learn": 0.0}
    for _ in range(ITERATIONS):
        results = algorithm.train()
        for stage in stages:
            stages[stage] += float(results[f"time/{stage}"])
    wall, processor = watch.read()
    watch = Stopwatch()
    mean_return = float(algorithm.evaluate(EVALUATION_EPISODES)["episode_return_mean"])
    _, evaluation = watch.read()
    steps = int(results["num_env_steps_sampled_lifetime"])
    algorithm.stop()
    print(
        json.dumps(
            {"wall": wall, "processor": processor, "evaluation": evaluation, "return": mean_return}
            | {"steps": steps, **stages}
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
