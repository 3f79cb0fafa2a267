"""uint8 numbers are divided by the bound of their own part: alone, in a Dict of uint8, and beside another part."""

import gymnasium as gym
import numpy as np
from case import P, check, small


def u(bound, number):
    return gym.spaces.Box(0, bound, (number,), np.uint8)


CASES = {
    "alone": (u(7, 2), np.array([[7, 3]], np.uint8), [1, 3 / 7]),
    "two bounds": (
        gym.spaces.Dict({"x": u(255, 1), "y": u(7, 1)}),
        {"x": np.array([[51]], np.uint8), "y": np.array([[7]], np.uint8)},
        [0.2, 1],
    ),
    "beside a choice": (
        gym.spaces.Dict({"x": u(255, 1), "z": gym.spaces.Discrete(2)}),
        {"x": np.array([[255]], np.uint8), "z": np.array([1])},
        [1, 0, 1],
    ),
    "beside a float": (
        gym.spaces.Dict({"x": u(15, 1), "z": gym.spaces.Box(-1.0, 1.0, (1,), np.float32)}),
        {"x": np.array([[5]], np.uint8), "z": np.array([[0.5]], np.float32)},
        [1 / 3, 0.5],
    ),
}
for name, (space, observation, read) in CASES.items():
    config = small(observations=space, actions=gym.spaces.Discrete(2), model={"fcnet_hiddens": []})
    learner = config.build_learner()
    weights = learner.get_weights()[P]
    found = learner.compute_actions(observation, explore=False)["action_dist_inputs"][0]
    expected = np.array(read) @ weights["pi.out.weight"] + weights["pi.out.bias"]
    check(
        np.allclose(found, expected, rtol=1e-4, atol=1e-6),
        f"{name}: logits {found}, and {expected} of the numbers {read}",
    )
