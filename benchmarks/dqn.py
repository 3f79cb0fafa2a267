"""The settings and the stopping rule of all runs of DQN on CartPole-v1.

rl-zoo's settings for stable-baselines3's DQN: one environment, 256 steps, then 128 gradient steps on 64 rows each.
"""

LR = 2.3e-3
BATCH_SIZE = 64
CAPACITY = 100_000
LEARNING_STARTS = 1000
GAMMA = 0.99
TARGET_UPDATE = 10
STEPS = 256
GRADIENT_STEPS = 128
END = 50_000
EXPLORATION_FRACTION = 0.16
FINAL_EPSILON = 0.04
HIDDENS = [256, 256]

EVALUATE_EVERY = 10
"""Rounds of `STEPS` steps."""
EPISODES = 20
LIMIT = 100_000
"""Environment steps after which a run counts as not solved."""
GOAL = 475.0
EVALUATION_SEED = 1000
EVALUATION_ENVS = 8
