"""One run of MaskablePPO on an environment of sb3-contrib: `python masks_sb3.py KIND PACKAGES SEED`.

It needs the peers' interpreter. PACKAGES is not read. The last line printed is JSON. Time is that of training.
"""

# mypy: disable-error-code="import-not-found"

import json
import sys
from time import perf_counter

import masks
import torch
from sb3_contrib import MaskablePPO
from sb3_contrib.common import envs
from sb3_contrib.common.maskable.evaluation import evaluate_policy


def main(kind: str, packages: str, seed: str) -> None:
    """Train, and evaluate now and then."""
    torch.set_num_threads(1)
    name, settings = masks.ENVIRONMENTS[kind]
    env = getattr(envs, name)(**settings)
    env.action_space.seed(int(seed))
    model = MaskablePPO(
        "MlpPolicy",
        env,
        learning_rate=masks.LR,
        gamma=masks.GAMMA,
        n_steps=masks.STEPS,
        batch_size=masks.BATCH_SIZE,
        n_epochs=masks.EPOCHS,
        policy_kwargs={"net_arch": masks.HIDDENS},
        seed=int(seed),
        device="cpu",
    )
    returns, seconds, done = [], 0.0, 0
    for updates in masks.EVALUATE_AFTER:
        begin = perf_counter()
        model.learn((updates - done) * masks.STEPS, reset_num_timesteps=False)
        seconds += perf_counter() - begin
        done = updates
        mean, _ = evaluate_policy(model, getattr(envs, name)(**settings), n_eval_episodes=masks.EPISODES)
        returns.append(float(mean))
    print(json.dumps({"returns": returns, "seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
