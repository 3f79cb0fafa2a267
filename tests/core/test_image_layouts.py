"""The layout of images can be named, and a shape that could be two layouts is warned of."""

import warnings

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from plugrad import RLModuleSpec, numpy_ops
from plugrad.networks import ActorCritic
from plugrad_ppo import PPOConfig

LAST, FIRST = "channels_last", "channels_first"


def network(space, **model):
    settings = {"fcnet_hiddens": [2], "vf_share_layers": True, **model}
    return ActorCritic(RLModuleSpec(observation_space=space, action_space=Discrete(2), model_config=settings))


def channels(net):
    return next(each.shape[2] for each in net.parameters if each.name.endswith("conv.0.weight"))


def image(*shape):
    return Box(0, 255, shape, np.uint8)


@pytest.mark.parametrize(
    ("shape", "layout", "expected"),
    [
        ((32, 64, 64), FIRST, 32),
        ((32, 64, 64), LAST, 64),
        ((24, 25, 3), LAST, 3),
        ((3, 24, 25), FIRST, 3),
        ((2, 22, 24, 25), FIRST, 44),
        ((2, 22, 24, 25), LAST, 50),
        ((24, 25), FIRST, 1),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_the_layout_that_is_named_is_used_and_nothing_is_warned_of(shape, layout, expected, inside):
    space = Dict({"eye": image(*shape), "x": Box(-1.0, 1.0, (1,))}) if inside else image(*shape)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert channels(network(space, image_layout=layout)) == expected


def test_small_images_channels_first_have_convolutions():
    assert channels(network(image(2, 10, 10), image_layout=FIRST)) == 2
    assert channels(network(image(2, 8, 8), image_layout=FIRST, conv_filters=[[3, 3, 1]])) == 2


@pytest.mark.parametrize("shape", [(20, 64, 64), (32, 64, 64), (2, 22, 24, 25)])
def test_a_shape_that_could_be_two_layouts_is_warned_of_with_the_setting(shape):
    with pytest.warns(UserWarning, match='could as well be .*"image_layout": "channels_last"'):
        network(image(*shape))


@pytest.mark.parametrize("shape", [(19, 64, 64), (84, 84, 4), (210, 160, 3), (4, 84, 84, 3), (84, 84)])
def test_other_shapes_are_not_warned_of(shape):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert channels(network(image(*shape)))


def test_both_layouts_compute_the_same_on_the_same_image():
    first, last = (
        network(image(21, 22, 23), image_layout=FIRST),
        network(image(22, 23, 21), image_layout=LAST),
    )
    weights = last.initial_weights(np.random.default_rng(0))
    rows = np.random.default_rng(1).integers(0, 256, (3, 22, 23, 21)).astype(np.uint8)
    outputs = [
        net.forward(numpy_ops, weights, {"obs": each}, value=True)["vf_preds"]
        for net, each in ((last, rows), (first, np.moveaxis(rows, -1, 1)))
    ]
    np.testing.assert_array_equal(*outputs)


def test_a_learner_is_warned_of_at_the_line_that_builds_it():
    some = PPOConfig().framework("numpy").rl_module(model_config={"fcnet_hiddens": [2]})
    some = some.environment(observation_space=image(20, 20, 20), action_space=Discrete(2))
    with pytest.warns(UserWarning, match="image_layout") as caught:
        some.build_learner()
    assert caught[0].filename == __file__
