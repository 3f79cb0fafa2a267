"""A neutral network as a module: what the backends' classes of it have in common."""

from collections.abc import Mapping
from typing import Any

from plugrad.networks import Network
from plugrad.rl_module.rl_module import RLModule
from plugrad.types import Tensor


class NetworkModule(RLModule, has_modes=False):
    """Computes what its network does, with `ops` of its class. A backend's class holds the weights.

    Attributes:
        network: what it computes.
    """

    network: Network

    def _tensors(self) -> Mapping[str, Tensor]:
        """`{name: tensor}`: those that stand for the weights now."""
        raise NotImplementedError

    def _forward(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        return self.network.forward(self.ops, self._tensors(), batch, value=True)

    def _forward_inference(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        return self.network.forward(self.ops, self._tensors(), batch, value=False)
