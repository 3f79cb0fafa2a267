"""One run of stable-baselines3 on CartPole-v1 until it is solved, in the peers' venv: `python cartpole_sb3.py SEED`.

The last line printed is JSON. Time starts just before the algorithm is built. It excludes imports.
"""

# mypy: disable-error-code="import-not-found"

import json
import sys
from time import perf_counter

import stable_baselines3
import torch
from cartpole import BATCH_SIZE, CLIP, ENVS, EPOCHS, GAMMA, LAMBDA, LIMITS, LR, STEPS, WINDOW, ZOO_END, solved
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env


class StopWhenSolved(BaseCallback):  # type: ignore[misc]
    """Callback that stops training when the rule is met. It checks after each iteration."""

    def _on_step(self) -> bool:
        return True

    def is_solved(self) -> bool:
        """Whether the last `WINDOW` finished training episodes meet the rule."""
        returns = [each["r"] for each in self.model.ep_info_buffer]
        return bool(returns) and solved(sum(returns) / len(returns))


def main(seed: str) -> None:
    torch.set_num_threads(1)
    start = perf_counter()
    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=ENVS, seed=int(seed)),
        n_steps=STEPS,
        batch_size=BATCH_SIZE,
        n_epochs=EPOCHS,
        gamma=GAMMA,
        gae_lambda=LAMBDA,
        ent_coef=0.0,
        learning_rate=lambda left: left * LR,
        clip_range=lambda left: left * CLIP,
        stats_window_size=WINDOW,
        seed=int(seed),
        device="cpu",
    )
    watch = StopWhenSolved()
    learning = 0.0
    _, callback = model._setup_learn(ZOO_END, watch)
    # PPO.learn's own loop, without printing, and with the rule looked at after each training instead of before it.
    while not watch.is_solved() and model.num_timesteps < LIMITS["zoo"]:
        model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=STEPS)
        model._update_current_progress_remaining(model.num_timesteps, ZOO_END)
        before = perf_counter()
        model.train()
        learning += perf_counter() - before
    seconds = perf_counter() - start
    mode = f"stable-baselines3 {stable_baselines3.__version__}"
    found = {"solved": watch.is_solved(), "seconds": seconds, "learning": learning}
    print(json.dumps({**found, "steps": model.num_timesteps, "mode": mode}))


if __name__ == "__main__":
    main(*sys.argv[1:])
