"""The built-in networks, written once over `Ops`: encoders, an LSTM, policy and value heads."""

from plugrad.networks.actor_critic import ActorCritic, action_inputs, lstm_cell_size
from plugrad.networks.encoders import Encoder
from plugrad.networks.initializers import constant, orthogonal
from plugrad.networks.layers import Parameter, convolution, dense, layer_parameters
from plugrad.networks.network import Network

__all__ = [
    "ActorCritic",
    "Encoder",
    "Network",
    "Parameter",
    "action_inputs",
    "constant",
    "convolution",
    "dense",
    "layer_parameters",
    "lstm_cell_size",
    "orthogonal",
]
