"""`RecurrentLayer`: the LSTM or GRU that follows an encoder."""

from collections.abc import Mapping
from typing import Any

from plugrad.errors import ConfigError
from plugrad.networks.gru import gru, gru_parameters
from plugrad.networks.layers import Parameter
from plugrad.networks.lstm import lstm, lstm_parameters
from plugrad.ops import Ops
from plugrad.types import Tensor

SWITCHES = ("use_lstm", "use_gru")
"""The settings of `model_config` that make a network recurrent."""


class RecurrentLayer:
    """An LSTM or a GRU, which may be used under several names with separate weights.

    Parameters: `<name>.lstm.*` or `<name>.gru.*`.

    Args:
        kind: "lstm" or "gru".
        inputs: number of inputs.
        cells: number of cells, which is also the number of outputs.
        ortho_init: see `lstm_parameters` and `gru_parameters`.
    """

    def __init__(self, kind: str, inputs: int, cells: int, *, ortho_init: bool) -> None:
        self.state_names = ("h", "c") if kind == "lstm" else ("h",)
        self.width = cells
        self._kind, self._inputs, self._ortho_init = kind, inputs, ortho_init

    def parameters(self, name: str) -> list[Parameter]:
        """The parameters under a name."""
        make = lstm_parameters if self._kind == "lstm" else gru_parameters
        return make(f"{name}.{self._kind}", self._inputs, self.width, ortho_init=self._ortho_init)

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Apply the layer to sequences.

        Args:
            ops: tensor functions.
            weights: `{parameter name: tensor}`.
            name: the prefix of the parameters' names.
            x: [B, T, inputs].
            state: the state before the first step, [B, cells] for each of `state_names`.

        Returns:
            The outputs [B, T, cells], and the state after the last step.
        """
        apply = lstm if self._kind == "lstm" else gru
        return apply(ops, weights, f"{name}.{self._kind}", x, state)


def recurrent_layer(config: Mapping[str, Any], inputs: int) -> RecurrentLayer | None:
    """The recurrent layer for `use_lstm` or `use_gru`.

    Args:
        config: a complete `model_config`.
        inputs: number of inputs.

    Returns:
        The layer; None if there is none.

    Raises:
        ConfigError: both settings are set.
    """
    kinds = [switch.removeprefix("use_") for switch in SWITCHES if config[switch]]
    if len(kinds) > 1:
        raise ConfigError(f"{' and '.join(SWITCHES)} are both set: give model_config one of them")
    if not kinds:
        return None
    cells = config[f"{kinds[0]}_cell_size"]
    return RecurrentLayer(kinds[0], inputs, cells, ortho_init=config["ortho_init"])


def refuse_recurrence(config: Mapping[str, Any], who: str) -> None:
    """Refuse `use_lstm` and `use_gru`.

    Args:
        config: a complete `model_config`.
        who: the algorithm that has no recurrent networks, such as "DQN".

    Raises:
        ConfigError: one of them is set.
    """
    for switch in SWITCHES:
        if config[switch]:
            raise ConfigError(f"{who} has no recurrent networks: leave {switch} out of model_config")
