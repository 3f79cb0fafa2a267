"""`NetworkModule`: a network over `Ops` as a module, the base of the backends' classes."""

from collections.abc import Callable, Mapping
from typing import Any

from plugrad.networks import Network
from plugrad.rl_module.precision import LoweredColumns, in_float32, lowered_ops
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

    def _forward_train(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        if (dtype := self._precision) is None:
            return self._forward(batch, **kwargs)
        weights = {name: self.ops.cast(each, dtype) for name, each in self._tensors().items()}
        ops, columns = lowered_ops(self.ops, dtype), LoweredColumns(self.ops, batch, dtype)
        outputs = self.network.forward(ops, weights, columns, value=True)
        lowered: dict[str, Tensor] = in_float32(self.ops, outputs)
        return lowered

    def _lowered(self, forward: Callable[..., Any], batch: Mapping[str, Tensor], **kwargs: Any) -> Any:
        return forward(batch, **kwargs)  # `_forward_train` has the casts, so that a backend compiles them

    def _forward_inference(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        return self.network.forward(self.ops, self._tensors(), batch, value=False)
