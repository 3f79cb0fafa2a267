"""Images whose layout is not clear are warned of with the setting that names it, and the named layout is used."""

import warnings

import gymnasium as gym
import numpy as np
from case import P, check, small

STACKED = (32, 64, 64)


def channels(shape, **model):
    """The channels of the first convolution, and what was warned of."""
    space = gym.spaces.Box(0, 255, shape, np.uint8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learner = small(observations=space, model={"fcnet_hiddens": [4], **model}).build_learner()
    weight = learner.get_weights()[P]["pi.conv.0.weight"]
    return weight.shape[2], [str(each.message) for each in caught]


found, said = channels(STACKED)
check(any("image_layout" in line for line in said), f"no warning names image_layout: {said}")
for layout, expected in (("channels_first", 32), ("channels_last", 64)):
    found, said = channels(STACKED, image_layout=layout)
    check(found == expected, f"{layout}: {found} channels of {STACKED}")
    check(not any("image_layout" in line for line in said), f"{layout} is named, and yet: {said}")
found, _ = channels((16, 64, 64))
check(found == 16, f"{found} channels of (16, 64, 64)")
