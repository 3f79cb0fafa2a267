"""RLModules of torch: the base of users' modules, and neutral networks as a module."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from plugrad.columns import Columns
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.ops import Ops
from plugrad.rl_module import RLModule, columns_of
from plugrad.types import Array
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

    @contextmanager
    def lend(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """See `RLModule.lend`: torch reads its parameters from dicts, where these stand meanwhile, at every place."""
        weights = self.named_weights()
        lent = {id(weights[name]): tensor for name, tensor in tensors.items()}
        slots = [
            (each._parameters, key, own)
            for each in self.modules()
            for key, own in each._parameters.items()
            if id(own) in lent
        ]
        for owner, key, own in slots:
            owner[key] = lent[id(own)]  # type: ignore[assignment]
        try:
            yield
        finally:
            for owner, key, own in slots:
                owner[key] = own

    def get_state(self) -> dict[str, Array]:
        """`{name: numpy copy}`."""
        return {name: param.detach().cpu().numpy().copy() for name, param in self.named_weights().items()}

    def _load(self, state: Mapping[str, Array]) -> None:
        with torch.no_grad():
            for name, param in self.named_weights().items():
                param.copy_(torch.as_tensor(np.array(state[name])))


class TorchModel(TorchRLModule):
    """A `torch.nn.Module` of the user's as a module: called with observations, answers as `columns_of` says.

    Args:
        spec: its spaces.
        model: what is called.
    """

    def __init__(self, spec: RLModuleSpec, model: torch.nn.Module) -> None:
        super().__init__(
            observation_space=spec.observation_space,
            action_space=spec.action_space,
            model_config=spec.model_config,
        )
        self.model = model

    def _forward(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        return columns_of(self.model(batch[Columns.OBS]))


class TorchNetwork(TorchRLModule):
    """A neutral network as a torch module.

    Args:
        spec: its spaces and settings.
        network: what it computes.
        weights: `{name: float32 array}` in canonical order.
        device: where the parameters live.
    """

    network: Network

    def __init__(
        self, spec: RLModuleSpec, network: Network, weights: Mapping[str, Array], device: str
    ) -> None:
        super().__init__(
            observation_space=spec.observation_space,
            action_space=spec.action_space,
            model_config=spec.model_config,
            inference_only=spec.inference_only,
        )
        self.network = network
        self._keys = {name: name.replace(".", "/") for name in weights}  # torch wants no dots in a name
        for name, weight in weights.items():
            self.register_parameter(self._keys[name], torch.nn.Parameter(torch.tensor(weight, device=device)))

    def named_weights(self) -> dict[str, Any]:
        """In the network's order."""
        return {name: self._parameters[key] for name, key in self._keys.items()}

    def _forward(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        return self.network.forward(ops, self.named_weights(), batch, value=True)

    def _forward_inference(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        return self.network.forward(ops, self.named_weights(), batch, value=False)
