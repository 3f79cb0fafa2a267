"""DQN on CartPole-v1 to a mean evaluation return of 475: seconds and steps, beside stable-baselines3.

`python benchmarks/train_dqn.py --peers PYTHON [--seeds 5]`. Each run has a pinned process, with one thread.
"""

from dqn import GOAL
from training_runs import compare

SB3 = "stable-baselines3, rl-zoo settings"
RUNS = {
    "plugrad torch, rl-zoo settings": ("dqn_plugrad.py", "torch", "zoo"),
    "plugrad tf2, rl-zoo settings": ("dqn_plugrad.py", "tf2", "zoo"),
    "plugrad torch, its defaults": ("dqn_plugrad.py", "torch", "default"),
    "plugrad tf2, its defaults": ("dqn_plugrad.py", "tf2", "default"),
    SB3: ("dqn_sb3.py",),
}

if __name__ == "__main__":
    compare(__doc__, RUNS, peer=SB3, note="Time without evaluations.", section="dqn", goal=GOAL)
