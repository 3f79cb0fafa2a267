"""The LSTM of the built-in networks: names, first weights, and what it computes against the equations step by step."""

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from hypothesis import given
from hypothesis import strategies as st

from plugrad import Columns, RLModuleSpec
from plugrad import numpy_ops as ops
from plugrad.errors import ConfigError
from plugrad.networks import ActorCritic
from plugrad.networks.recurrent import lstm, lstm_parameters

IN, CELLS = 3, 2
TWO_ACTIONS = Discrete(2)


def weights(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {each.name: rng.standard_normal(each.shape) for each in lstm_parameters("m", IN, CELLS)}


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def one_step(parameters, x, h, c):
    """Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000, gate by gate."""
    sums = x @ parameters["m.input_weight"] + h @ parameters["m.recurrent_weight"] + parameters["m.bias"]
    i, f, o, g = (sums[..., n * CELLS : (n + 1) * CELLS] for n in range(4))
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def test_outputs_and_state_are_those_of_the_equations_step_by_step():
    rng = np.random.default_rng(1)
    x, h, c = rng.normal(size=(4, 5, IN)), rng.normal(size=(4, CELLS)), rng.normal(size=(4, CELLS))
    outputs, (last_h, last_c) = lstm(ops, weights(), "m", x, (h, c))
    for t in range(5):
        h, c = one_step(weights(), x[:, t], h, c)
        np.testing.assert_allclose(outputs[:, t], h, rtol=1e-12)
    np.testing.assert_allclose(last_h, h, rtol=1e-12)
    np.testing.assert_allclose(last_c, c, rtol=1e-12)


@given(steps=st.integers(2, 9), data=st.data())
def test_a_sequence_cut_anywhere_gives_the_same_if_the_state_is_handed_on(steps, data):
    at = data.draw(st.integers(1, steps - 1))
    x, zeros = np.random.default_rng(steps).normal(size=(2, steps, IN)), np.zeros((2, CELLS))
    whole, last = lstm(ops, weights(), "m", x, (zeros, zeros))
    first, between = lstm(ops, weights(), "m", x[:, :at], (zeros, zeros))
    second, end = lstm(ops, weights(), "m", x[:, at:], between)
    np.testing.assert_allclose(np.concatenate([first, second], 1), whole, rtol=1e-12)
    np.testing.assert_allclose(end, last, rtol=1e-12)


def test_first_weights_are_orthogonal_and_only_the_forget_gates_have_a_bias_of_one():
    drawn = {
        each.name: each.init(np.random.default_rng(0), each.shape, each.scale)
        for each in lstm_parameters("m", 5, 4)
    }
    assert {name: array.shape for name, array in drawn.items()} == {
        "m.input_weight": (5, 16),
        "m.recurrent_weight": (4, 16),
        "m.bias": (16,),
    }
    for name in ("m.input_weight", "m.recurrent_weight"):
        np.testing.assert_allclose(drawn[name] @ drawn[name].T, np.eye(len(drawn[name])), atol=1e-6)
    assert drawn["m.bias"].tolist() == [0.0] * 4 + [1.0] * 4 + [0.0] * 8


# --- in a network -------------------------------------------------------------------------------------------------


def network(action: Any = TWO_ACTIONS, inference_only: bool = False, **model: Any) -> ActorCritic:
    spec = RLModuleSpec(
        observation_space=Box(-1, 1, (IN,)),
        action_space=action,
        model_config={"fcnet_hiddens": [4], "use_lstm": True, "lstm_cell_size": CELLS, **model},
        inference_only=inference_only,
    )
    return ActorCritic(spec)


LAYERS = ["0.weight", "0.bias", "lstm.input_weight", "lstm.recurrent_weight", "lstm.bias"]


@pytest.mark.parametrize(
    ("settings", "encoders", "state"),
    [
        ({}, ("pi", "vf"), ["pi_h", "pi_c", "vf_h", "vf_c"]),
        ({"vf_share_layers": True}, ("encoder",), ["h", "c"]),
        ({"inference_only": True}, ("pi",), ["pi_h", "pi_c"]),
        ({"inference_only": True, "vf_share_layers": True}, ("encoder",), ["h", "c"]),
    ],
)
def test_the_memory_stands_between_encoder_and_head_and_has_a_state_for_each_encoder(
    settings, encoders, state
):
    net = network(**settings)
    names = [each.name for each in net.parameters if not each.name.endswith(("out.weight", "out.bias"))]
    assert names == [f"{encoder}.{layer}" for encoder in encoders for layer in LAYERS]
    initial = net.initial_state()
    assert list(initial) == state
    for value in initial.values():
        np.testing.assert_array_equal(value, np.zeros(CELLS, np.float32))
        assert value.dtype == np.float32


@pytest.mark.parametrize("action", [Discrete(2), MultiDiscrete([2, 3]), Box(-1, 1, (2,))])
@pytest.mark.parametrize("shared", [False, True])
def test_every_action_space_gets_its_inputs_at_every_step(action, shared):
    net = network(action, vf_share_layers=shared)
    drawn = net.initial_weights(np.random.default_rng(0))
    inputs = {Discrete: 2, MultiDiscrete: 5, Box: 4}[type(action)]
    batch = {
        Columns.OBS: np.random.default_rng(1).normal(size=(6, 5, IN)).astype(np.float32),
        Columns.STATE_IN: {name: np.zeros((6, CELLS), np.float32) for name in net.initial_state()},
    }
    out = net.forward(ops, drawn, batch, value=True)
    assert out[Columns.ACTION_DIST_INPUTS].shape == (6, 5, inputs)
    assert out[Columns.VF_PREDS].shape == (6, 5)
    assert list(out[Columns.STATE_OUT]) == list(net.initial_state())
    assert all(value.shape == (6, CELLS) and value.any() for value in out[Columns.STATE_OUT].values())
    greedy = net.forward(ops, drawn, batch, value=False)
    assert Columns.VF_PREDS not in greedy
    for name, value in out[Columns.STATE_OUT].items():  # the value's memory goes on, too
        np.testing.assert_array_equal(greedy[Columns.STATE_OUT][name], value)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "many"])
def test_a_number_of_cells_that_cannot_be_is_refused(wrong):
    with pytest.raises(ConfigError, match=r"lstm_cell_size=.*whole number above 0"):
        network(lstm_cell_size=wrong)
