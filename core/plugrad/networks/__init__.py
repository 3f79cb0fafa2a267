"""The built-in networks, written once over `Ops`: encoders, an LSTM, policy and value heads."""

from plugrad.networks.actor_critic import ActorCritic, action_inputs, lstm_cell_size
from plugrad.networks.network import Network

__all__ = ["ActorCritic", "Network", "action_inputs", "lstm_cell_size"]
