"""Checkpoints of images that had dense layers when they were saved, and would get convolutions or an error today."""

import gymnasium as gym
import numpy as np
import pytest

from plugrad import Learner
from plugrad.checkpoint import load_checkpoint, save_checkpoint
from plugrad_ppo import PPOConfig

ACTIONS = gym.spaces.Discrete(2)


def config(space, **model):
    settings = {"fcnet_hiddens": [3], **model}
    return (
        PPOConfig()
        .framework("numpy")
        .environment(observation_space=space, action_space=ACTIONS)
        .rl_module(model_config=settings)
        .debugging(seed=0)
    )


def as_older(source, target):
    """The same checkpoint without a word of convolutions in its settings, as older versions wrote it."""
    found = load_checkpoint(source)
    metadata = dict(found.metadata)

    def without(value):
        if isinstance(value, dict):
            return {key: without(each) for key, each in value.items() if key != "conv_filters"}
        return [without(each) for each in value] if isinstance(value, list) else value

    metadata["config"] = without(metadata["config"])
    save_checkpoint(target, found.state, metadata=metadata)


@pytest.mark.parametrize("by_module", [False, True])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((4, 24, 24), "uint8"),
        ((8, 8, 3), "uint8"),
        ((3, 24, 24), "float32"),
        ((24, 24), "uint8"),
        ((2, 24, 24, 3), "uint8"),
        ((10, 10, 3), "uint8"),
    ],
)
def test_older_checkpoints_of_images_with_dense_layers_open(tmp_path, shape, dtype, by_module):
    space = gym.spaces.Box(0, 255, shape, np.dtype(dtype).type)
    if by_module:
        spaces = {"p0": (space, ACTIONS), "p1": (gym.spaces.Box(-1, 1, (3,)), ACTIONS)}
        learner = (
            PPOConfig()
            .framework("numpy")
            .rl_module(model_config={"fcnet_hiddens": [3], "conv_filters": []})
            .build_learner(spaces=spaces)
        )
    else:
        learner = config(space, conv_filters=[]).build_learner()
    learner.save_to_path(tmp_path / "now")
    as_older(tmp_path / "now", tmp_path / "older")
    opened = Learner.from_checkpoint(tmp_path / "older")
    for module_id, weights in learner.get_weights().items():
        for name, weight in weights.items():
            np.testing.assert_array_equal(opened.get_weights()[module_id][name], weight)
    opened.save_to_path(tmp_path / "again")
    assert Learner.from_checkpoint(tmp_path / "again").get_weights().keys() == learner.get_weights().keys()


def test_older_checkpoints_of_images_with_convolutions_open_as_before(tmp_path):
    learner = config(gym.spaces.Box(0, 255, (24, 22, 3), np.uint8)).build_learner()
    learner.save_to_path(tmp_path / "now")
    as_older(tmp_path / "now", tmp_path / "older")
    opened = Learner.from_checkpoint(tmp_path / "older")
    assert "conv_filters" not in opened.config.model_config
    for name, weight in learner.get_weights()["default_policy"].items():
        np.testing.assert_array_equal(opened.get_weights()["default_policy"][name], weight)
