"""Weights that are loaded alone into SAC reach its target critics too, by every door."""

import tempfile

import gymnasium as gym
import numpy as np
from case import P, check, small

from plugrad_sac import SACConfig

TORQUE = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)


def learner(seed):
    return small(SACConfig, actions=TORQUE, seed=seed).build_learner()


def transitions(number=16):
    rng = np.random.default_rng(4)
    return {
        "obs": rng.normal(size=(number, 3)).astype(np.float32),
        "new_obs": rng.normal(size=(number, 3)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (number, 2)).astype(np.float32),
        "rewards": rng.normal(size=number).astype(np.float32),
        "terminateds": np.zeros(number, bool),
        "truncateds": np.zeros(number, bool),
    }


source = learner(0)
for _ in range(3):
    source.update(transitions())
weights = source.get_weights()
with tempfile.TemporaryDirectory() as path:
    source.save_to_path(path)
    doors = {
        "set_weights": lambda reader: reader.set_weights(weights),
        "component=rl_module": lambda reader: reader.restore_from_path(path, component="rl_module"),
        "component of a module": lambda reader: reader.restore_from_path(path, component=f"rl_module/{P}"),
    }
    for door, load in doors.items():
        reader = learner(1)
        load(reader)
        targets = reader.get_state("targets")["targets"][P]
        shared = [name for name in targets if name in weights[P]]
        check(shared, f"{door}: targets have the names {list(targets)[:4]}")
        differ = [name for name in shared if not np.array_equal(targets[name], weights[P][name])]
        check(not differ, f"{door}: targets of {differ} are not the loaded weights")
    whole = learner(1)
    whole.restore_from_path(path)
    kept = whole.get_state("targets")["targets"][P]
    expected = source.get_state("targets")["targets"][P]
    check(all(np.array_equal(kept[name], expected[name]) for name in expected), "saved targets were lost")
