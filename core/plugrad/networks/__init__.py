"""The built-in networks, written once over `Ops`: encoders, recurrent layers, policy heads and value heads."""

from plugrad.networks.actor_critic import (
    ActorCritic,
    PolicyHead,
    StateDependentHead,
    action_inputs,
    lstm_cell_size,
)
from plugrad.networks.encoders import Encoder
from plugrad.networks.initializers import constant, orthogonal, uniform
from plugrad.networks.layers import (
    HiddenLayers,
    Network,
    Parameter,
    convolution,
    dense,
    layer_norm,
    layer_parameters,
    stacked,
)
from plugrad.networks.recurrent import RecurrentLayer, recurrent_layer, refuse_recurrence

__all__ = [
    "ActorCritic",
    "Encoder",
    "HiddenLayers",
    "Network",
    "Parameter",
    "PolicyHead",
    "RecurrentLayer",
    "StateDependentHead",
    "action_inputs",
    "constant",
    "convolution",
    "dense",
    "layer_norm",
    "layer_parameters",
    "lstm_cell_size",
    "orthogonal",
    "recurrent_layer",
    "refuse_recurrence",
    "stacked",
    "uniform",
]
