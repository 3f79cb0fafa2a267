"""One run of plugrad on CartPole-v1 until it is solved: `python cartpole_plugrad.py BACKEND SETTINGS SEED`.

The last line printed is JSON. Time starts just before the algorithm is built. It excludes imports.
"""

import json
import sys
from time import perf_counter

from cartpole import BATCH_SIZE, CLIP, ENVS, EPOCHS, GAMMA, LAMBDA, LIMITS, LR, STEPS, ZOO_END, solved
from contestant_plugrad import use_one_thread

from plugrad_ppo import PPOConfig


def make_config(backend: str, settings: str, seed: int) -> PPOConfig:
    """Make a config with plugrad's defaults, or with the settings of rl-zoo."""
    config = PPOConfig().environment("CartPole-v1").framework(backend).debugging(seed=seed)
    if settings == "default":
        return config
    return config.env_runners(num_envs_per_env_runner=ENVS).training(
        train_batch_size=ENVS * STEPS,
        minibatch_size=BATCH_SIZE,
        num_epochs=EPOCHS,
        lr=[[0, LR], [ZOO_END, 0.0]],
        clip_param=[[0, CLIP], [ZOO_END, 0.0]],
        gamma=GAMMA,
        lambda_=LAMBDA,
        entropy_coeff=0.0,
        vf_loss_coeff=0.5,
        grad_clip=0.5,
        optimizer={"eps": 1e-5},
    )


def main(backend: str, settings: str, seed: str) -> None:
    use_one_thread(backend)
    __import__(f"plugrad_{backend}")  # imports are not timed
    start = perf_counter()
    algorithm = make_config(backend, settings, int(seed)).build_algo()
    steps, mean, learning = 0, 0.0, 0.0
    while not solved(mean) and steps < LIMITS[settings]:
        results = algorithm.train()
        steps = int(results["num_env_steps_sampled_lifetime"])
        mean = float(results.get("env_runners/episode_return_mean", 0.0))
        learning += float(results["time/learn"])
    seconds = perf_counter() - start
    mode = algorithm.learner_group.foreach_learner(lambda learner: learner.update_mode)[0]
    algorithm.stop()
    print(
        json.dumps(
            {"solved": solved(mean), "seconds": seconds, "learning": learning, "steps": steps, "mode": mode}
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
