"""The GRU of the built-in networks: what it computes against the equations step by step, names and first weights."""

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import given
from hypothesis import strategies as st

from plugrad import Columns, RLModuleSpec
from plugrad import numpy_ops as ops
from plugrad.errors import ConfigError
from plugrad.networks import ActorCritic
from plugrad.networks.recurrent import gru, gru_parameters

IN, CELLS = 3, 2


def weights(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {each.name: rng.standard_normal(each.shape) for each in gru_parameters("m", IN, CELLS)}


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def one_step(parameters, x, h):
    """Cho et al. 2014, gate by gate, with the reset gate after the product."""
    of_x, of_h = x @ parameters["m.input_weight"] + parameters["m.bias"], h @ parameters["m.recurrent_weight"]
    x_r, x_z, x_n = (of_x[..., n * CELLS : (n + 1) * CELLS] for n in range(3))
    h_r, h_z, h_n = (of_h[..., n * CELLS : (n + 1) * CELLS] for n in range(3))
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    n = np.tanh(x_n + r * (h_n + parameters["m.recurrent_bias"]))
    return (1.0 - z) * n + z * h


def test_outputs_and_state_are_those_of_the_equations_step_by_step():
    rng = np.random.default_rng(1)
    x, h = rng.normal(size=(4, 5, IN)), rng.normal(size=(4, CELLS))
    outputs, (last,) = gru(ops, weights(), "m", x, (h,))
    for t in range(5):
        h = one_step(weights(), x[:, t], h)
        np.testing.assert_allclose(outputs[:, t], h, rtol=1e-12)
    np.testing.assert_allclose(last, h, rtol=1e-12)


@given(steps=st.integers(2, 9), data=st.data())
def test_a_sequence_cut_anywhere_gives_the_same_if_the_state_is_handed_on(steps, data):
    at = data.draw(st.integers(1, steps - 1))
    x, zeros = np.random.default_rng(steps).normal(size=(2, steps, IN)), np.zeros((2, CELLS))
    whole, last = gru(ops, weights(), "m", x, (zeros,))
    first, between = gru(ops, weights(), "m", x[:, :at], (zeros,))
    second, end = gru(ops, weights(), "m", x[:, at:], between)
    np.testing.assert_allclose(np.concatenate([first, second], 1), whole, rtol=1e-12)
    np.testing.assert_allclose(end, last, rtol=1e-12)


def test_first_weights_are_orthogonal_and_first_biases_are_0():
    drawn = {
        each.name: each.init(np.random.default_rng(0), each.shape, each.scale)
        for each in gru_parameters("m", 5, 4)
    }
    assert {name: array.shape for name, array in drawn.items()} == {
        "m.input_weight": (5, 12),
        "m.recurrent_weight": (4, 12),
        "m.bias": (12,),
        "m.recurrent_bias": (4,),
    }
    for name in ("m.input_weight", "m.recurrent_weight"):
        np.testing.assert_allclose(drawn[name] @ drawn[name].T, np.eye(len(drawn[name])), atol=1e-6)
    assert not drawn["m.bias"].any()
    assert not drawn["m.recurrent_bias"].any()


# --- in a network -------------------------------------------------------------------------------------------------


def network(**model: Any) -> ActorCritic:
    model = {"fcnet_hiddens": [4], "use_gru": True, "gru_cell_size": CELLS, **model}
    return ActorCritic(
        RLModuleSpec(observation_space=Box(-1, 1, (IN,)), action_space=Discrete(2), model_config=model)
    )


LAYERS = ["0.weight", "0.bias", "gru.input_weight", "gru.recurrent_weight", "gru.bias", "gru.recurrent_bias"]


@pytest.mark.parametrize(
    ("shared", "encoders", "state"),
    [(False, ("pi", "vf"), ["pi_h", "vf_h"]), (True, ("encoder",), ["h"])],
)
def test_the_gru_stands_between_encoder_and_head_and_has_a_state_for_each_encoder(shared, encoders, state):
    net = network(vf_share_layers=shared)
    names = [each.name for each in net.parameters if not each.name.endswith(("out.weight", "out.bias"))]
    assert names == [f"{encoder}.{layer}" for encoder in encoders for layer in LAYERS]
    assert {name: value.shape for name, value in net.initial_state().items()} == dict.fromkeys(
        state, (CELLS,)
    )
    batch = {
        Columns.OBS: np.random.default_rng(1).normal(size=(6, 5, IN)).astype(np.float32),
        Columns.STATE_IN: {name: np.zeros((6, CELLS), np.float32) for name in state},
    }
    out = net.forward(ops, net.initial_weights(np.random.default_rng(0)), batch, value=True)
    assert out[Columns.VF_PREDS].shape == (6, 5)
    assert list(out[Columns.STATE_OUT]) == state
    assert all(value.any() for value in out[Columns.STATE_OUT].values())


def test_an_lstm_and_a_gru_at_once_are_refused():
    with pytest.raises(ConfigError, match="use_lstm and use_gru are both set: give model_config one of them"):
        network(use_lstm=True)
