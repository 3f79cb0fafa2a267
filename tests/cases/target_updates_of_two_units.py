"""DQN's target goes on moving when updates without timesteps are followed by updates with them."""

import numpy as np
from case import P, check, small

from plugrad_dqn import DQNConfig

ROWS, EVERY = 16, 64
learner = small(DQNConfig, target_network_update_freq=EVERY).build_learner()
rng = np.random.default_rng(0)
rows = {
    "obs": rng.normal(size=(ROWS, 3)).astype(np.float32),
    "new_obs": rng.normal(size=(ROWS, 3)).astype(np.float32),
    "actions": rng.integers(0, 3, ROWS),
    "rewards": rng.normal(size=ROWS).astype(np.float32),
    "terminateds": np.zeros(ROWS, bool),
    "truncateds": np.zeros(ROWS, bool),
}


def moves(number, with_timesteps):
    name = f"num_target_updates_lifetime/{P}"
    before = learner.counters.get(name, 0)
    for n in range(1, number + 1):
        now = {"num_env_steps_sampled_lifetime": n * ROWS} if with_timesteps else None
        learner.update(rows, timesteps=now)
    return learner.counters.get(name, 0) - before


offline, online = moves(24, False), moves(12, True)
check(offline == 24 * ROWS // EVERY, f"{offline} moves in 24 updates without timesteps")
check(online == 12 * ROWS // EVERY, f"{online} moves in the 12 updates with timesteps that follow")
