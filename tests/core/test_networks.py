"""The built-in networks: names, shapes, first weights and the forward pass, against plain numpy."""

import pickle
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text
from hypothesis import given
from hypothesis import strategies as st

from plugrad import Columns, RLModuleSpec
from plugrad import numpy_ops as ops
from plugrad.errors import ConfigError
from plugrad.networks import ActorCritic, Network
from plugrad.networks.initializers import constant, orthogonal
from plugrad.rng_streams import stream

OBSERVATIONS, ACTIONS = Box(-1, 1, (3,)), Discrete(2)


def network(
    observation: Any = OBSERVATIONS, action: Any = ACTIONS, inference_only: bool = False, **model: Any
):
    model_config = {"fcnet_hiddens": (5, 4), **model}
    spec = RLModuleSpec(
        observation_space=observation,
        action_space=action,
        model_config=model_config,
        inference_only=inference_only,
    )
    return ActorCritic(spec)


def shapes(net: ActorCritic) -> dict[str, tuple[int, ...]]:
    return {each.name: each.shape for each in net.parameters}


def randomized(net: ActorCritic, seed: int = 0) -> dict[str, Any]:
    """Weights of which none is zero or small, so that a mistake shows."""
    rng = np.random.default_rng(seed)
    return {name: np.float32(rng.standard_normal(shape)) for name, shape in shapes(net).items()}


# --- names and shapes, the order of flat buffers and checkpoints ------------------------------------------------------

HIDDEN = {"0.weight": (3, 5), "0.bias": (5,), "1.weight": (5, 4), "1.bias": (4,)}
VALUE = {"vf.out.weight": (4, 1), "vf.out.bias": (1,)}


def encoder(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}.{layer}": shape for layer, shape in HIDDEN.items()}


def head(outputs: int) -> dict[str, tuple[int, ...]]:
    return {"pi.out.weight": (4, outputs), "pi.out.bias": (outputs,)}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {**encoder("pi"), **head(2), **encoder("vf"), **VALUE}),
        ({"vf_share_layers": True}, {**encoder("encoder"), **head(2), **VALUE}),
        ({"inference_only": True}, {**encoder("pi"), **head(2)}),
        ({"inference_only": True, "vf_share_layers": True}, {**encoder("encoder"), **head(2)}),
        ({"action": MultiDiscrete([2, 3])}, {**encoder("pi"), **head(5), **encoder("vf"), **VALUE}),
        (
            {"action": Box(-1, 1, (2,))},
            {**encoder("pi"), **head(2), "pi.log_std": (2,), **encoder("vf"), **VALUE},
        ),
        (
            {"action": Box(-1, 1, (2,)), "free_log_std": False},
            {**encoder("pi"), **head(4), **encoder("vf"), **VALUE},
        ),
        (
            {"fcnet_hiddens": ()},
            {"pi.out.weight": (3, 2), "pi.out.bias": (2,), "vf.out.weight": (3, 1), "vf.out.bias": (1,)},
        ),
    ],
)
def test_parameters_have_canonical_names_order_and_shapes(settings, expected):
    net = network(**settings)
    assert list(shapes(net).items()) == list(expected.items())
    weights = net.initial_weights(stream(0, "p", "weights"))
    assert [(name, array.shape) for name, array in weights.items()] == list(expected.items())
    assert {array.dtype for array in weights.values()} == {np.dtype("float32")}


IMAGE = Box(0, 255, (9, 8, 2), np.uint8)
FILTERS = ((3, 3, 2), (4, 2, 1))
"""They make [4, 3, 3] and then [3, 2, 4] of an image [9, 8, 2]."""


def conv_encoder(name: str) -> dict[str, tuple[int, ...]]:
    convolutions = {"conv.0.weight": (3, 3, 2, 3), "conv.0.bias": (3,)}
    convolutions |= {"conv.1.weight": (2, 2, 3, 4), "conv.1.bias": (4,)}
    layers = {**convolutions, **HIDDEN, "0.weight": (24, 5)}
    return {f"{name}.{layer}": shape for layer, shape in layers.items()}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {**conv_encoder("pi"), **head(2), **conv_encoder("vf"), **VALUE}),
        ({"vf_share_layers": True}, {**conv_encoder("encoder"), **head(2), **VALUE}),
        ({"inference_only": True}, {**conv_encoder("pi"), **head(2)}),
    ],
)
def test_convolutions_come_first_in_a_encoder(settings, expected):
    net = network(IMAGE, conv_filters=FILTERS, **settings)
    assert list(shapes(net).items()) == list(expected.items())
    assert not net.acts_in_numpy


@pytest.mark.parametrize(
    ("shape", "settings", "first"),
    [
        (
            (20, 20, 3),
            {},
            {"pi.conv.0.weight": (4, 4, 3, 16), "pi.conv.2.bias": (64,), "pi.0.weight": (64, 5)},
        ),
        ((40, 30, 1), {}, {"pi.conv.2.weight": (3, 3, 32, 64), "pi.0.weight": (3 * 2 * 64, 5)}),
        ((20, 20, 3), {"conv_filters": []}, {"pi.0.weight": (1200, 5)}),
        ((20, 19, 3), {"conv_filters": []}, {"pi.0.weight": (1140, 5)}),
        ((20, 20), {"conv_filters": []}, {"pi.0.weight": (400, 5)}),
        ((19, 19), {}, {"pi.0.weight": (361, 5)}),
        ((4, 84, 84), {}, {"pi.conv.0.weight": (4, 4, 4, 16), "pi.0.weight": (9 * 9 * 64, 5)}),
        ((1, 20, 30), {}, {"pi.conv.0.weight": (4, 4, 1, 16), "pi.conv.2.weight": (3, 3, 32, 64)}),
        ((4, 84, 84), {"conv_filters": []}, {"pi.0.weight": (28224, 5)}),
    ],
)
def test_images_of_20_by_20_and_more_get_convolutions_unless_told_otherwise(shape, settings, first):
    net = network(Box(0, 255, shape, np.uint8), **settings)
    assert first.items() <= shapes(net).items()
    has_convolutions = any("conv" in name for name in first)
    assert has_convolutions == any("conv" in name for name in shapes(net)) == (not net.acts_in_numpy)


@pytest.mark.parametrize("shape", [(20, 19, 3), (3, 19, 20), (8, 8, 3), (4, 10, 10), (4, 84, 19, 3)])
def test_an_image_without_built_in_convolutions_is_an_error_that_says_what_to_type(shape):
    with pytest.raises(ConfigError) as caught:
        network(Box(0, 255, shape, np.uint8))
    for words in (str(list(shape)), "conv_filters = [[16, 4, 2], ...]", "conv_filters = []", "module_class"):
        assert words in str(caught.value)
    dense = network(Box(0, 255, shape, np.uint8), conv_filters=[])
    assert shapes(dense)["pi.0.weight"][0] == np.prod(shape)


@pytest.mark.parametrize("leading", [(5,), (2, 3)])
def test_channels_first_computes_what_the_same_image_does_with_channels_last(leading):
    first = network(Box(0, 255, (4, 22, 21), np.uint8))
    last = network(Box(0, 255, (22, 21, 4), np.uint8))
    weights = first.initial_weights(np.random.default_rng(0))
    assert shapes(first) == shapes(last)
    images = np.random.default_rng(1).integers(0, 256, (*leading, 4, 22, 21), np.uint8)
    found = first.forward(ops, weights, {Columns.OBS: images}, value=True)
    expected = last.forward(ops, weights, {Columns.OBS: np.moveaxis(images, -3, -1)}, value=True)
    for column, want in expected.items():
        np.testing.assert_array_equal(found[column], want)
        assert want.shape[: len(leading)] == leading
        assert np.abs(want).max() > 1e-4


# --- first weights ------------------------------------------------------------------------------------------------


@given(st.integers(1, 12), st.integers(1, 12), st.floats(0.01, 3.0), st.integers(0, 99))
def test_orthogonal_weights_are_orthogonal_and_scaled(rows, columns, gain, seed):
    matrix = orthogonal(np.random.default_rng(seed), (rows, columns), gain).astype(np.float64) / gain
    small = matrix.T @ matrix if rows >= columns else matrix @ matrix.T
    np.testing.assert_allclose(small, np.eye(min(rows, columns)), atol=1e-5)


def test_a_kernel_is_orthogonal_as_the_matrix_that_meets_its_patches():
    kernel = orthogonal(np.random.default_rng(0), (3, 3, 2, 5), 2.0)
    matrix = orthogonal(np.random.default_rng(0), (18, 5), 2.0)
    np.testing.assert_array_equal(kernel.reshape(18, 5), matrix)


def test_orthogonal_weights_point_everywhere():
    """Without the signs of R's diagonal numpy's Q would not be uniform: its first entry would be negative."""
    firsts = [orthogonal(np.random.default_rng(seed), (3, 3), 1.0)[0, 0] for seed in range(200)]
    assert 70 < sum(first > 0 for first in firsts) < 130


def test_a_constant_draws_nothing():
    rng = np.random.default_rng(0)
    assert constant(rng, (2,), 0.5).tolist() == [0.5, 0.5]
    assert rng.bit_generator.state == np.random.default_rng(0).bit_generator.state


def test_gains_are_root_two_for_hidden_layers_a_hundredth_for_the_policy_and_one_for_the_value():
    weights = network(action=Box(-1, 1, (2,))).initial_weights(stream(0, "p", "weights"))
    norms = {name: np.linalg.norm(array, 2) for name, array in weights.items() if name.endswith("weight")}
    for name, norm in norms.items():
        gain = {"pi.out.weight": 0.01, "vf.out.weight": 1.0}.get(name, 2.0**0.5)
        np.testing.assert_allclose(norm, gain, rtol=1e-5)
    for name, array in weights.items():
        assert name.endswith("weight") or not array.any()


def test_equal_streams_give_equal_weights():
    drawn = [network().initial_weights(stream(seed, "p", "weights")) for seed in (0, 0, 1)]
    for name in drawn[0]:
        np.testing.assert_array_equal(drawn[0][name], drawn[1][name])
    assert (drawn[0]["pi.0.weight"] != drawn[2]["pi.0.weight"]).all()


# --- the forward pass ---------------------------------------------------------------------------------------------

ACTIVATIONS = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "linear": lambda x: x,
}


def by_hand(weights: dict[str, Any], name: str, head_name: str, x: Any, activation: str = "tanh") -> Any:
    weights = {key: np.float64(array) for key, array in weights.items()}
    for n in range(2):
        x = ACTIVATIONS[activation](x @ weights[f"{name}.{n}.weight"] + weights[f"{name}.{n}.bias"])
    return x @ weights[f"{head_name}.weight"] + weights[f"{head_name}.bias"]


def observations(*shape: int) -> Any:
    return np.float32(np.random.default_rng(1).standard_normal(shape))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("leading", [(7,), (2, 4)])
def test_the_forward_pass_agrees_with_plain_numpy(activation, shared, leading):
    net = network(fcnet_activation=activation, vf_share_layers=shared)
    weights, x = randomized(net), observations(*leading, 3)
    out = net.forward(ops, weights, {Columns.OBS: x}, value=True)
    policy, value = ("encoder", "encoder") if shared else ("pi", "vf")
    assert list(out) == [Columns.ACTION_DIST_INPUTS, Columns.VF_PREDS]
    assert out[Columns.VF_PREDS].shape == leading
    expected = by_hand(weights, policy, "pi.out", x, activation)
    np.testing.assert_allclose(out[Columns.ACTION_DIST_INPUTS], expected, rtol=1e-4, atol=1e-5)
    expected = by_hand(weights, value, "vf.out", x, activation)[..., 0]
    np.testing.assert_allclose(out[Columns.VF_PREDS], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("leading", [(7,), (2, 4)])
def test_a_free_log_std_stands_beside_the_mean_in_every_row(leading):
    net = network(action=Box(-1, 1, (2,)))
    weights, x = randomized(net), observations(*leading, 3)
    inputs = net.forward(ops, weights, {Columns.OBS: x}, value=True)[Columns.ACTION_DIST_INPUTS]
    assert inputs.shape == (*leading, 4)
    np.testing.assert_allclose(inputs[..., :2], by_hand(weights, "pi", "pi.out", x), rtol=1e-4, atol=1e-5)
    assert (inputs[..., 2:] == weights["pi.log_std"]).all()


def test_discrete_observations_choose_a_row_of_the_first_layer():
    net = network(Discrete(3))
    weights = randomized(net)
    found = net.forward(ops, weights, {Columns.OBS: np.array([2, 0])}, value=False)
    expected = by_hand(weights, "pi", "pi.out", np.eye(3)[[2, 0]])
    np.testing.assert_allclose(found[Columns.ACTION_DIST_INPUTS], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("space", "observations", "rows"),
    [
        (Discrete(3, start=4), [6, 4], [[0, 0, 1], [1, 0, 0]]),
        (MultiDiscrete([2, 3]), [[1, 2], [0, 0]], [[0, 1, 0, 0, 1], [1, 0, 1, 0, 0]]),
        (MultiDiscrete([2, 3], start=[5, -1]), [[6, 1], [5, -1]], [[0, 1, 0, 0, 1], [1, 0, 1, 0, 0]]),
        (MultiBinary(3), [[1, 0, 1], [0, 0, 1]], [[1, 0, 1], [0, 0, 1]]),
        (MultiBinary([2, 2]), [[[1, 0], [0, 1]]], [[1, 0, 0, 1]]),
    ],
)
def test_choices_are_one_hot_from_their_start_and_bits_are_numbers(space, observations, rows):
    net = network(space)
    weights, obs = randomized(net), np.array(observations, space.dtype)
    found = net.forward(ops, weights, {Columns.OBS: obs}, value=True)
    expected = by_hand(weights, "pi", "pi.out", np.float64(rows))
    np.testing.assert_allclose(found[Columns.ACTION_DIST_INPUTS], expected, rtol=1e-4, atol=1e-5)
    assert found[Columns.VF_PREDS].shape == (len(rows),)


@pytest.mark.parametrize("leading", [(7,), (2, 4)])
@pytest.mark.parametrize("shape", [(), (2, 2), (2, 1, 3)])
def test_observations_of_any_rank_are_flattened_behind_the_leading_dimensions(shape, leading):
    net = network(Box(-1, 1, shape))
    weights, x = randomized(net), observations(*leading, *shape)
    found = net.forward(ops, weights, {Columns.OBS: x}, value=True)
    expected = by_hand(weights, "pi", "pi.out", x.reshape(*leading, -1))
    np.testing.assert_allclose(found[Columns.ACTION_DIST_INPUTS], expected, rtol=1e-4, atol=1e-5)
    assert found[Columns.VF_PREDS].shape == leading


def convolved_by_hand(weights: dict[str, Any], name: str, x: Any, activation: str) -> Any:
    """FILTERS over images [B, H, W, C], patch by patch."""
    for n, (outputs, kernel, stride) in enumerate(FILTERS):
        weight, bias = np.float64(weights[f"{name}.conv.{n}.weight"]), weights[f"{name}.conv.{n}.bias"]
        rows, columns = ((size - kernel) // stride + 1 for size in x.shape[1:3])
        y = np.zeros((len(x), rows, columns, outputs))
        for b, i, j, out in np.ndindex(y.shape):
            patch = x[b, stride * i : stride * i + kernel, stride * j : stride * j + kernel]
            y[b, i, j, out] = (patch * weight[..., out]).sum() + bias[out]
        x = ACTIVATIONS[activation](y)
    return x.reshape(len(x), -1)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("leading", [(3,), (2, 2), ()])
def test_a_convolutional_forward_pass_agrees_with_plain_numpy(activation, shared, leading):
    net = network(IMAGE, conv_filters=FILTERS, conv_activation=activation, vf_share_layers=shared)
    weights = randomized(net)
    images = np.random.default_rng(1).integers(0, 256, (*leading, 9, 8, 2), np.uint8)
    out = net.forward(ops, weights, {Columns.OBS: images}, value=True)
    assert out[Columns.VF_PREDS].shape == leading
    found = {"pi": out[Columns.ACTION_DIST_INPUTS], "vf": out[Columns.VF_PREDS][..., None]}
    for head_name, got in found.items():
        name = "encoder" if shared else head_name
        features = convolved_by_hand(weights, name, images.reshape(-1, 9, 8, 2) / 255, activation)
        expected = by_hand(weights, name, f"{head_name}.out", features).reshape(got.shape)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
        assert got.dtype == np.float32


@pytest.mark.parametrize(
    ("space", "divisor"),
    [
        (Box(0, 255, (3,), np.uint8), 255),
        (Box(0, 1, (3,), np.uint8), 1),
        (Box(0, 0, (3,), np.uint8), 1),
        (Box(0, 255, (3,), np.int32), 1),
        (Box(0, 255, (3,), np.float32), 1),
    ],
)
def test_only_uint8_is_scaled_and_by_the_highest_that_it_can_be(space, divisor):
    net, plain = network(space), network(OBSERVATIONS)
    weights, x = randomized(net), np.array([[0, 1, 0], [1, 0, 1]])
    found = net.forward(ops, weights, {Columns.OBS: x.astype(space.dtype)}, value=True)
    expected = plain.forward(ops, weights, {Columns.OBS: np.float32(x / divisor)}, value=True)
    for column in expected:
        np.testing.assert_allclose(found[column], expected[column], rtol=1e-6)


@pytest.mark.parametrize(("inference_only", "value"), [(True, True), (True, False), (False, False)])
def test_values_are_left_out_where_nobody_needs_them(inference_only, value):
    net = network(inference_only=inference_only)
    found = net.forward(ops, randomized(net), {Columns.OBS: observations(2, 3)}, value=value)
    assert list(found) == [Columns.ACTION_DIST_INPUTS]


# --- what cannot be served ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"observation": Dict({"a": Text(4)})},
            r"observations\['a'\] are of a Text space",
        ),
        ({"observation": None}, "observation space None"),
        ({"action": None}, "a policy needs an action space: give action_space="),
        ({"fcnet_activation": "tahn"}, "fcnet_activation='tahn': must be one of tanh, relu, sigmoid, linear"),
        (
            {"observation": IMAGE, "conv_activation": "rleu"},
            "conv_activation='rleu': must be one of relu, tanh, sigmoid, linear",
        ),
        *(
            (
                {"observation": IMAGE, "conv_filters": wrong},
                r"conv_filters=.*\[out channels, kernel, stride\]",
            )
            for wrong in ([[3, 3]], [[3, 0, 1]], [3, 3, 1], [[3, [3, 3], 1]], "small", 0)
        ),
        (
            {"observation": IMAGE, "conv_filters": [[4, 3, 2], [4, 4, 1]]},
            r"conv_filters\[1\] has a kernel of 4x4, but of observations \[9, 8, 2\] only 4x3 are left",
        ),
        (
            {"conv_filters": [[4, 3, 2]]},
            r"conv_filters need observations \[height, width, channels\]; found \[3\]",
        ),
        ({"fcnet_hidens": [4]}, r"no key 'fcnet_hidens'; .*Did you mean 'fcnet_hiddens'\?"),
    ],
)
def test_what_cannot_be_served_is_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        network(**settings)


def test_a_network_may_read_keys_of_its_own():
    spec = RLModuleSpec(model_config={"qf_hiddens": [8]})
    own = {"qf_hiddens": [16], "fcnet_activation": "relu"}
    settings = spec.network_config(own)
    assert (settings["qf_hiddens"], settings["fcnet_activation"]) == ([8], "relu")
    assert RLModuleSpec(model_config={"fcnet_activation": "tanh"}).network_config(own)["qf_hiddens"] == [16]
    with pytest.raises(ConfigError, match=r"no key 'qf_hidens'.*Did you mean 'qf_hiddens'"):
        RLModuleSpec(model_config={"qf_hidens": [8]}).network_config(own)
    with pytest.raises(ConfigError, match="no key 'qf_hiddens'"):
        spec.network_config()


# --- the distribution that takes the outputs --------------------------------------------------------------------------


def test_the_distribution_of_an_action_space_is_looked_up_once():
    class Counted(Discrete):
        num_read = 0

        def __getattribute__(self, name):
            Counted.num_read += name == "n"
            return super().__getattribute__(name)

    net, space = network(), Counted(2)
    found = net.distribution_class(space, ops)
    number = Counted.num_read
    assert all(net.distribution_class(space, ops) is found for _ in range(3))
    assert Counted.num_read == number > 0
    assert net.distribution_class(Discrete(3), ops).input_dim == 3  # of another space, and back
    assert net.distribution_class(space, ops) is found


def test_a_network_that_has_looked_up_its_distribution_can_be_pickled_and_copied():
    net = network()
    net.action_space = ACTIONS
    outputs = np.zeros((1, 2), np.float32)
    assert net.distribution(ops, outputs).mode() == [0]
    for other in (pickle.loads(pickle.dumps(net)), deepcopy(net)):
        assert shapes(other) == shapes(net)
        assert other.distribution(ops, outputs).mode() == [0]


class OfSlots(Network):
    __slots__ = ("factor",)
    parameters = ()

    def forward(self, ops, weights, columns):
        return {}


@dataclass(frozen=True)
class OfFrozenFields(Network):
    factor: int

    def forward(self, ops, weights, columns):
        return {}


def of_slots():
    net = OfSlots()
    net.factor = 3
    return net


@pytest.mark.parametrize("make", [of_slots, lambda: OfFrozenFields(3)], ids=["slots", "frozen"])
def test_a_network_of_an_authors_class_looks_up_distributions_and_keeps_its_attributes_in_copies(make):
    net = make()
    assert net.distribution_class(ACTIONS, ops) is net.distribution_class(ACTIONS, ops)
    for other in (pickle.loads(pickle.dumps(net)), deepcopy(net)):
        assert other.factor == 3
