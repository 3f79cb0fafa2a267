"""RLModules of JAX: the base of users' modules, and neutral networks as a module."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

from plugrad.columns import Columns
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.ops import Ops
from plugrad.rl_module import LoweredColumns, NetworkModule, RLModule, WeightsOnDemand, columns_of_outputs
from plugrad.types import Array, Tensor
from plugrad_jax import ops
from plugrad_jax.acting import Forward
from plugrad_jax.devices import computing_on, mesh_of, ops_on
from plugrad_jax.sharding import ShardedWeight
from plugrad_jax.variables import TensorVariable, Weight


class JaxRLModule(RLModule, has_modes=False):
    """A module that a learner trains: make layers of `flax.nnx` in `setup`, compute columns in `_forward`.

    Each call computes with copies of the layers in its own mode. In a program the copies have tracers as weights.
    """

    framework: ClassVar[str] = "jax"
    ops: ClassVar[Ops] = ops
    _device: str | None = None
    _mode_is_set = False
    _replaced: Mapping[str, Tensor] = MappingProxyType({})
    _layers: dict[str, Any] | None = None
    """The module's own layers, while copies stand in their places."""

    def move_to(self, device: str) -> None:
        """Put weights and buffers on a learner's device; from now on the module computes there."""
        vars(self).update(_device=device, ops=ops_on(device))
        self.named_state()

    def named_state(self) -> dict[str, TensorVariable]:
        """`{name: variable}` of weights and buffers, by name."""
        from plugrad_jax import layers

        self._state = layers.named_state(self._layers or layers.layers_of(self), self._device)
        return self._state  # kept, so that another module with this layer finds the same variables

    def named_weights(self) -> dict[str, Weight]:
        """`{name: weight}` in canonical order."""
        return {name: each for name, each in self.named_state().items() if isinstance(each, Weight)}

    def in_mode(self, training: bool, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """See `RLModule.in_mode`: `train()` or `eval()` of the layers."""
        if self._mode_is_set:
            return forward(*args, **kwargs)
        self._mode_is_set = True
        try:
            with computing_on(self._device), self._copied_layers(training):
                return forward(*args, **kwargs)
        finally:
            self._mode_is_set = False

    @contextmanager
    def functional_call(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """See `RLModule.functional_call`."""
        former = self._replaced
        self._replaced = {**former, **tensors}
        try:
            with self._copied_layers(None):  # for what the user's own methods compute
                yield
        finally:
            self._replaced = former

    def new_scalar(self, value: float) -> Any:
        """See `PartsModule.new_scalar`."""
        from flax import nnx

        return nnx.Param(ops.asarray(value, "float32"))

    def without_gradient(self, word: str) -> AbstractContextManager[None]:
        """See `PartsModule.without_gradient`."""
        present = {**{name: each.read() for name, each in self.named_weights().items()}, **self._replaced}
        constants = {name: ops.stop_gradient(each) for name, each in present.items() if name.startswith(word)}
        return self.functional_call(constants)

    @contextmanager
    def _copied_layers(self, training: bool | None) -> Iterator[None]:
        from plugrad_jax import layers

        former, own = self._layers, self._layers or layers.layers_of(self)
        self._state = state = layers.named_state(own, self._device)
        values = {**{name: each.read() for name, each in state.items()}, **self._replaced}
        if (dtype := self._precision) is not None:
            cast = {
                name: ops.cast(values[name], dtype)
                for name, each in state.items()
                if isinstance(each, Weight)
            }
            values |= cast
        copies = layers.Copies(own, values, training)
        places = {name: vars(self)[name] for name in copies.layers}
        vars(self).update(copies.layers)
        self._layers = own
        try:
            yield
        finally:
            vars(self).update(places)
            self._layers = former
        for name, value in copies.changed().items():
            state[name].assign(value)

    def _lowered(self, forward: Callable[..., Any], batch: Mapping[str, Any], **kwargs: Any) -> Any:
        """See `RLModule._lowered`: layers compute in the dtype of weights and columns, which are cast."""
        assert self._precision is not None
        return forward(LoweredColumns(self.ops, batch, self._precision), **kwargs)

    def get_state(self) -> dict[str, Array]:
        """`{name: numpy copy}`."""
        return {name: each.numpy() for name, each in self.named_state().items()}

    def _load(self, state: Mapping[str, Array]) -> None:
        for name, each in self.named_state().items():
            each.assign(state[name])


class JaxModel(JaxRLModule):
    """A user's `nnx.Module` as a module: takes observations, returns what `columns_of_outputs` takes."""

    def __init__(self, spec: RLModuleSpec, model: Any) -> None:
        super().__init__(**spec.arguments())
        self.model = model

    @property
    def class_name(self) -> str:
        """That of the model."""
        return type(self.model).__name__

    def _forward(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        return columns_of_outputs(self.model(batch[Columns.OBS]))


class JaxNetwork(NetworkModule, JaxRLModule, has_modes=False):
    """A neutral network as a module.

    Args:
        spec: its spaces and settings.
        network: what it computes.
        weights: `{name: float32 array}` in canonical order.
        device: where it computes.
    """

    def __init__(
        self, spec: RLModuleSpec, network: Network, weights: Mapping[str, Array], device: str
    ) -> None:
        super().__init__(**spec.arguments())
        self.network = network
        weight_class = Weight if mesh_of(device) is None else ShardedWeight
        self._weights = {name: weight_class(array, device=device) for name, array in weights.items()}
        self.move_to(device)
        self._act = Forward(partial(network.forward, self.ops, value=False))
        self._explore = Forward(partial(network.forward, self.ops, value=True))

    def forward_inference(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """See `RLModule.forward_inference`: one program for many rows outside of updates."""
        return self._outputs(self._act, super().forward_inference, batch)

    def forward_exploration(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """See `RLModule.forward_exploration`: one program for many rows outside of updates."""
        return self._outputs(self._explore, super().forward_exploration, batch)

    def compute_values(self, batch: Mapping[str, Tensor]) -> Tensor:
        """See `RLModule.compute_values`: one program for many rows outside of updates."""
        return self.forward_exploration(batch)[Columns.VF_PREDS]

    def _outputs(
        self, program: Forward, one_by_one: Callable[..., Any], batch: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        if self._replaced or not program.is_worth_it(batch):
            alone: dict[str, Tensor] = one_by_one(batch)
            return alone
        weights = {name: each.placed(each.snapshot()) for name, each in self._weights.items()}
        return self.mask_outputs(program(weights, batch), batch)

    def named_state(self) -> dict[str, TensorVariable]:
        """Weights, in the network's order."""
        return dict(self._weights)

    @contextmanager
    def _copied_layers(self, training: bool | None) -> Iterator[None]:
        yield

    def _acting_weights(self) -> WeightsOnDemand:
        return WeightsOnDemand(self._weights, Weight.numpy)

    def _tensors(self) -> dict[str, Tensor]:
        own = {name: each.read() for name, each in self._weights.items() if name not in self._replaced}
        return {**own, **self._replaced}
