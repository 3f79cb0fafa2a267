"""BC from 20 episodes of a trained PPO to a mean evaluation return of 475 on CartPole-v1: seconds and rows.

`python benchmarks/train_bc.py [--seeds 5]`. Each run has a pinned process, with one thread.
"""

from dqn import GOAL
from training_runs import compare

RUNS = {"plugrad torch": ("bc_plugrad.py", "torch"), "plugrad tf2": ("bc_plugrad.py", "tf2")}

if __name__ == "__main__":
    note = "Steps are recorded rows learned from. Time without evaluations."
    compare(__doc__, RUNS, peer=None, note=note, section="bc", goal=GOAL)
