"""One flat batch of rows for IMPALA and APPO is refused with the shape that V-trace needs, and changes nothing."""

import gymnasium as gym
import numpy as np
from case import P, check, equal, refused, small

from plugrad.errors import BatchError
from plugrad_impala import APPOConfig, IMPALAConfig

rng = np.random.default_rng(0)
NUMBER = 12
ROWS = {
    "obs": rng.normal(size=(NUMBER, 3)).astype(np.float32),
    "actions": rng.integers(0, 2, NUMBER),
    "rewards": rng.normal(size=NUMBER).astype(np.float32),
    "terminateds": np.arange(NUMBER) == NUMBER - 1,
    "vf_preds": np.zeros(NUMBER, np.float32),
    "action_logp": np.full(NUMBER, -0.69, np.float32),
    "action_dist_inputs": np.zeros((NUMBER, 2), np.float32),
}
for kind in (IMPALAConfig, APPOConfig):
    learner = small(kind, actions=gym.spaces.Discrete(2)).build_learner()
    before = learner.get_weights()[P]
    with refused(BatchError, "'obs'", "sequences"):
        learner.update({P: ROWS})
    check(equal(learner.get_weights()[P], before), f"{kind.__name__}: a refused batch changed weights")
