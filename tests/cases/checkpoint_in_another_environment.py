"""A checkpoint opened with an environment of other spaces: refused by name; keys in another order are taken by key."""

import tempfile

import gymnasium as gym
import numpy as np
from case import P, check, in_environment, refused

from plugrad.algorithm import Algorithm
from plugrad.errors import SpaceMismatchError

PART = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
TORQUE = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)


class Wind(gym.Env):
    """1 is right where speed is positive."""

    observation_space = gym.spaces.Dict([("speed", PART), ("noise", PART)])
    action_space = gym.spaces.Discrete(3)
    given: set[int] = set()  # noqa: RUF012

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return self.measure(), {}

    def measure(self):
        seen = {key: self.np_random.uniform(-1, 1, 1).astype(np.float32) for key in ("speed", "noise")}
        self.right = int(seen["speed"][0] > 0)
        return {key: seen[key] for key in self.observation_space.spaces}

    def step(self, action):
        Wind.given.add(int(np.asarray(action).ravel()[0]))
        reward = float(np.asarray(action).ravel()[0] == self.right)
        self.clock += 1
        return self.measure(), reward, self.clock >= 10, False, {}


def like(**changed):
    return type("Other", (Wind,), changed)


OTHERS = {
    "two actions": like(action_space=gym.spaces.Discrete(2)),
    "actions from 2": like(action_space=gym.spaces.Discrete(3, start=2)),
    "one choice of several": like(action_space=gym.spaces.MultiDiscrete([3])),
    "torques": like(action_space=TORQUE),
    "a key renamed": like(observation_space=gym.spaces.Dict([("velocity", PART), ("noise", PART)])),
    "uint8 for float": like(
        observation_space=gym.spaces.Dict(
            [("speed", gym.spaces.Box(0, 255, (1,), np.uint8)), ("noise", PART)]
        )
    ),
}
SORTED = like(observation_space=gym.spaces.Dict([("noise", PART), ("speed", PART)]))


def config(env):
    config = in_environment(env, train_batch_size=16, minibatch_size=16, num_epochs=1)
    return config.rl_module(model_config={"fcnet_hiddens": []})


with tempfile.TemporaryDirectory() as path:
    algorithm = config(Wind).build_algo()
    # A policy that reads the speed alone, of a single layer whose rows are speed and noise.
    weights = algorithm.learner_group.get_weights()
    weights[P]["pi.out.weight"] = np.array([[-50, 50, 0], [0, 0, 0]], np.float32)
    weights[P]["pi.out.bias"] = np.array([0, 0, -50], np.float32)
    algorithm.learner_group.set_weights(weights)
    reached = algorithm.evaluate(5)["episode_return_mean"]
    algorithm.save_to_path(path)
    algorithm.stop()
    check(reached == 10, f"the policy reaches {reached} of 10")
    Wind.given.clear()
    for env in OTHERS.values():
        with refused(SpaceMismatchError):
            Algorithm.from_checkpoint(path, env=env)
    other = config(OTHERS["two actions"]).build_algo()
    with refused(SpaceMismatchError):
        other.restore_from_path(path)
    other.stop()
    check(not Wind.given, f"an environment was given the actions {Wind.given}")

    opened = Algorithm.from_checkpoint(path, env=SORTED)
    found = opened.evaluate(5)["episode_return_mean"]
    opened.stop()
    check(found == 10, f"keys in another order: a return of {found}, not 10")
    fresh = config(SORTED).build_algo()
    try:
        fresh.restore_from_path(path)
    except SpaceMismatchError:
        pass  # a module whose rows have another order: by name, never by chance
    else:
        found = fresh.evaluate(5)["episode_return_mean"]
        check(found == 10, f"restore_from_path of keys in another order: a return of {found}")
    fresh.stop()
