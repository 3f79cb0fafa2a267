"""`normalize_observations` leaves an image or a choice that is the whole observation as it is, dtype included."""

import gymnasium as gym
import numpy as np
from case import check, in_environment


class Camera(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (24, 24, 3), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.clock = 0
        return self.see(), {}

    def see(self):
        self.seen = self.observation_space.sample()
        return self.seen

    def step(self, action):
        self.clock += 1
        return self.see(), 1.0, self.clock >= 5, False, {}


class Door(Camera):
    observation_space = gym.spaces.Discrete(5)


def observed(env, **runners):
    config = in_environment(env, train_batch_size=16, minibatch_size=16, num_epochs=1)
    algorithm = config.env_runners(**runners).build_algo()
    found = np.asarray(algorithm.sample()[0].observations)
    algorithm.stop()
    return found


for env in (Camera, Door):
    plain, found = observed(env), observed(env, normalize_observations=True)
    check(found.dtype == plain.dtype, f"{env.__name__}: {plain.dtype} became {found.dtype}")
    check(np.array_equal(found, plain), f"{env.__name__}: {found[1].ravel()[:5]} for {plain[1].ravel()[:5]}")
check(observed(Camera, normalize_observations=True).dtype == np.uint8, "an image is not kept as uint8")
