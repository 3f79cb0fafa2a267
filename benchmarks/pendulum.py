"""The settings of all runs of PPO on Pendulum: those of RLtools' example (`src/rl/environments/pendulum/ppo/cpu`)."""

ENVS = 4
STEPS = 1024
BATCH = ENVS * STEPS
ITERATIONS = 75
"""RLtools' example runs so many for its limit of 300,000 steps: 307,200 steps."""

MINIBATCH = 256
EPOCHS = 2
LR = 1e-3
GAMMA = 0.9
LAMBDA = 0.95
CLIP = 0.2
HIDDENS = (64, 64)
INITIAL_STD = 2.0
"""Of actions in [-1, 1]."""

TIME_LIMIT = 200
EVALUATION_EPISODES = 100
"""Greedy episodes after the training; their time is not counted."""
