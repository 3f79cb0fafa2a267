"""RLModules of torch: the base of users' modules, and the built-in networks as a module."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import ActorCriticMLP
from plugrad.ops import Ops
from plugrad.rl_module import RLModule
from plugrad.types import Array
from torch import Tensor

from plugrad_torch import ops


class TorchRLModule(torch.nn.Module, RLModule):
    """A `torch.nn.Module` that a learner trains: make layers in `setup`, compute columns in `_forward`."""

    framework: ClassVar[str] = "torch"
    ops: ClassVar[Ops] = ops

    def __init__(self, **spec: Any) -> None:
        torch.nn.Module.__init__(self)
        RLModule.__init__(self, **spec)

    def named_weights(self) -> dict[str, torch.nn.Parameter]:
        """`{name: parameter}` in canonical order: by name, since `named_parameters` depends on nesting."""
        return dict(sorted(self.named_parameters()))

    def get_state(self) -> dict[str, Array]:
        """`{name: numpy copy}`."""
        return {name: param.detach().cpu().numpy().copy() for name, param in self.named_weights().items()}

    def _load(self, state: Mapping[str, Array]) -> None:
        with torch.no_grad():
            for name, param in self.named_weights().items():
                param.copy_(torch.as_tensor(np.array(state[name])))


class TorchNetwork(TorchRLModule):
    """A built-in network as a torch module.

    Args:
        spec: what to build.
        weights: `{name: float32 array}` in canonical order.
        device: where the parameters live.
    """

    network: ActorCriticMLP

    def __init__(self, spec: RLModuleSpec, weights: Mapping[str, Array], device: str) -> None:
        super().__init__(
            observation_space=spec.observation_space,
            action_space=spec.action_space,
            model_config=spec.model_config,
            inference_only=spec.inference_only,
        )
        self.network = ActorCriticMLP(spec)
        # A plain dict keeps the canonical names, which have dots; registration makes `parameters()` and `to()` work.
        self._weights = {
            name: torch.nn.Parameter(torch.tensor(w, device=device)) for name, w in weights.items()
        }
        for name, param in self._weights.items():
            self.register_parameter(name.replace(".", "/"), param)

    def named_weights(self) -> dict[str, torch.nn.Parameter]:
        """In the network's order."""
        return self._weights

    def _forward(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        return self.network.forward(ops, self._weights, batch, value=True)

    def _forward_inference(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        return self.network.forward(ops, self._weights, batch, value=False)
