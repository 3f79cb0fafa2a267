"""CartPole-v1 to a mean return of 475 over the last 20 training episodes: seconds and steps, beside stable-baselines3.

`python benchmarks/train_cartpole.py --peers PYTHON [--seeds 5]`. Each run has a pinned process, with one thread.
"""

from cartpole import GOAL
from training_runs import compare

SB3 = "stable-baselines3, rl-zoo settings"
RUNS = {
    "plugrad torch, rl-zoo settings": ("cartpole_plugrad.py", "torch", "zoo"),
    "plugrad tf2, rl-zoo settings": ("cartpole_plugrad.py", "tf2", "zoo"),
    "plugrad jax, rl-zoo settings": ("cartpole_plugrad.py", "jax", "zoo"),
    "plugrad torch, its defaults": ("cartpole_plugrad.py", "torch", "default"),
    "plugrad tf2, its defaults": ("cartpole_plugrad.py", "tf2", "default"),
    "plugrad jax, its defaults": ("cartpole_plugrad.py", "jax", "default"),
    SB3: ("cartpole_sb3.py",),
}

if __name__ == "__main__":
    note = "Targets: torch 1.0, tf2 0.5 of stable-baselines3's seconds."
    compare(__doc__, RUNS, peer=SB3, note=note, section="cartpole", goal=GOAL)
