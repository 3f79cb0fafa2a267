"""The settings and the stopping rule of all runs on CartPole-v1."""

ENVS = 8
STEPS = 32
BATCH_SIZE = 256
EPOCHS = 20
LR = 1e-3
CLIP = 0.2
LAMBDA = 0.8
GAMMA = 0.98
ZOO_END = 100_000
"""rl-zoo's settings of PPO for CartPole-v1; the learning rate and the clip range fall to zero at this step."""

GOAL = 475.0
WINDOW = 20
LIMITS = {"zoo": ZOO_END, "default": 200_000}
"""Environment steps after which a run counts as not solved."""


def solved(mean_return: float) -> bool:
    """Whether the mean return of the last `WINDOW` finished training episodes has reached the goal."""
    return mean_return >= GOAL
