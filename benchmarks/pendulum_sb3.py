"""One run of stable-baselines3 on Pendulum, in the peers' venv: `python pendulum_sb3.py SEED`.

The environments are Gymnasium's, with actions in [-1, 1]. The last line printed is JSON, as of `pendulum_plugrad.py`.
"""

# mypy: disable-error-code="import-not-found"

import json
import math
import sys

import torch
from pendulum import (
    BATCH,
    CLIP,
    ENVS,
    EPOCHS,
    EVALUATION_EPISODES,
    GAMMA,
    HIDDENS,
    INITIAL_STD,
    ITERATIONS,
    LAMBDA,
    LR,
    MINIBATCH,
    STEPS,
)
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize
from stopwatch import Stopwatch


def main(seed: str) -> None:
    torch.set_num_threads(1)
    watch = Stopwatch()
    envs = make_vec_env("pendulum_env:ArrayPendulum-v0", n_envs=ENVS, seed=int(seed))
    envs = VecNormalize(envs, norm_reward=False)
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=STEPS,
        batch_size=MINIBATCH,
        n_epochs=EPOCHS,
        learning_rate=LR,
        gamma=GAMMA,
        gae_lambda=LAMBDA,
        clip_range=CLIP,
        ent_coef=0.0,
        max_grad_norm=math.inf,
        policy_kwargs={
            "net_arch": {"pi": list(HIDDENS), "vf": list(HIDDENS)},
            "activation_fn": torch.nn.ReLU,
            "ortho_init": False,
            "log_std_init": math.log(INITIAL_STD),
            "optimizer_kwargs": {"eps": 1e-8},
        },
        seed=int(seed),
        device="cpu",
    )
    model.learn(ITERATIONS * BATCH)
    wall, processor = watch.read()
    watch = Stopwatch()
    envs.training = False
    mean_return, _ = evaluate_policy(model, envs, n_eval_episodes=EVALUATION_EPISODES)
    _, evaluation = watch.read()
    found = {"wall": wall, "processor": processor, "evaluation": evaluation, "return": float(mean_return)}
    print(json.dumps({**found, "steps": model.num_timesteps}))


if __name__ == "__main__":
    main(*sys.argv[1:])
