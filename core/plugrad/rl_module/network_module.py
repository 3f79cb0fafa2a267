"""A network over ops as a module: the base of the backends' classes."""

from collections.abc import Mapping
from typing import Any

from plugrad.networks import Network
from plugrad.rl_module.rl_module import RLModule
from plugrad.types import Tensor


class NetworkModule(RLModule, has_modes=False):
    """Runs a network over the `ops` of its class. A backend's class holds the weights.

    Attributes:
        network: the network.
    """

    network: Network

    def _tensors(self) -> Mapping[str, Tensor]:
        """`{name: tensor}`: the tensors that are currently used as weights."""
        raise NotImplementedError

    def _forward(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        return self.network.forward(self.ops, self._tensors(), batch, value=True)

    def _forward_inference(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        return self.network.forward(self.ops, self._tensors(), batch, value=False)
