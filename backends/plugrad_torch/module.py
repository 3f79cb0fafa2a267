"""RLModules of torch: the base of users' modules, and neutral networks as a module."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from plugrad.columns import Columns
from plugrad.errors import BatchError
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.observations import is_structured, model_space, row_shape, row_space
from plugrad.ops import Ops
from plugrad.rl_module import NetworkModule, RLModule, WeightsOnDemand, columns_of_outputs
from plugrad.spaces.kinds import is_one_hot
from plugrad.types import Array
from plugrad_torch import threads
from plugrad_torch.devices import ops_on
from plugrad_torch.sharding import ShardedParameters
from plugrad_torch.variables import places_in, to_numpy


class TorchRLModule(torch.nn.Module, RLModule, has_modes=False):
    """A `torch.nn.Module` that a learner trains: make layers in `setup`, compute columns in `_forward`."""

    framework: ClassVar[str] = "torch"
    _device = "cpu"
    _mode_is_set = False
    _num_weights: float | None = None
    divided: Sequence[ShardedParameters] = ()
    """The vectors of its parameters which each process of a group has in part (`plugrad_torch.sharding`)."""

    def __init__(self, **spec: Any) -> None:
        torch.nn.Module.__init__(self)
        RLModule.__init__(self, **spec)

    @property
    def ops(self) -> Ops:  # type: ignore[override]
        """Tensor functions that make tensors on the device of the module."""
        return ops_on(self._device)

    def _gather(self) -> None:
        """Put weights together of which this process has a part, before they are read."""
        for each in self.divided:
            each.gather()

    def named_weights(self) -> dict[str, torch.nn.Parameter]:
        """`{name: parameter}` in canonical order: by name, since `named_parameters` depends on nesting."""
        return dict(sorted(self.named_parameters()))

    def named_state(self) -> dict[str, Tensor]:
        """`{name: tensor}` of parameters and of the buffers that a `state_dict` has, by name."""
        return dict(sorted({**self.named_weights(), **self._named_buffers()}.items()))

    def _named_buffers(self) -> dict[str, Tensor]:
        hidden = {
            id(each._buffers[key]) for each in self.modules() for key in each._non_persistent_buffers_set
        }
        return {name: each for name, each in self.named_buffers() if id(each) not in hidden}

    def _move_to(self, device: str) -> None:
        """See `RLModule._move_to`: users make layers on the CPU. Parameters stay the same objects."""
        self.to(device)
        self.__dict__["_device"] = device

    def in_mode(self, training: bool, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """See `RLModule.in_mode`: `self.train(training)`, then each layer gets its own flag back.

        A small forward pass that is not for training has one thread. A program chooses for those of its steps.
        """
        if self._mode_is_set:
            return forward(*args, **kwargs)
        self._gather()
        flags = [(each, each.training) for each in self.modules()]
        self.__dict__["_mode_is_set"] = True
        try:
            self.train(training)
            if training or threads.are_chosen():
                return forward(*args, **kwargs)
            rows = next((len(each) for each in _tensors_in(args) if each.ndim), 1)
            with threads.for_work(threads.FORWARD * self._weights_of_a_row() * rows):
                return forward(*args, **kwargs)
        finally:
            self.__dict__["_mode_is_set"] = False
            for each, flag in flags:
                each.__dict__["training"] = flag

    def _weights_of_a_row(self) -> float:
        """How many weights there are, counted once: this is asked in each step of an environment."""
        if self._num_weights is None:
            self.__dict__["_num_weights"] = threads.num_weights(self)
        return self._num_weights or 0.0

    @contextmanager
    def functional_call(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """See `RLModule.functional_call`: the tensors replace the parameters in the dicts that torch reads."""
        state, places = self.named_state(), places_in(self)
        replacing = {id(state[name]): tensor for name, tensor in tensors.items()}
        slots = [(owner, key, owner[key]) for own in replacing for owner, key in places[own]]
        for owner, key, own in slots:
            owner[key] = replacing[id(own)]
        try:
            yield
        finally:
            for owner, key, own in slots:
                owner[key] = own

    def new_scalar(self, value: float) -> torch.nn.Parameter:
        """See `PartsModule.new_scalar`."""
        return torch.nn.Parameter(torch.tensor(value, dtype=torch.float32))

    def without_gradient(self, word: str) -> AbstractContextManager[None]:
        """See `PartsModule.without_gradient`."""
        named = self.named_weights().items()
        return self.functional_call({name: each.detach() for name, each in named if name.startswith(word)})

    def _lowered(self, forward: Callable[..., Any], batch: Mapping[str, Tensor], **kwargs: Any) -> Any:
        """See `RLModule._lowered`: torch's autocast, which also knows what must stay float32."""
        assert self._precision is not None
        dtype, kind = getattr(torch, self._precision), torch.device(self._device).type
        with torch.autocast(kind, dtype=dtype, cache_enabled=False):
            return forward(batch, **kwargs)

    def get_state(self) -> dict[str, Array]:
        """`{name: numpy copy}`."""
        self._gather()
        return {name: to_numpy(tensor) for name, tensor in self.named_state().items()}

    def _count_changes(self) -> int:
        """See `RLModule._count_changes`: torch counts changes in place, such as those of `load_state_dict`."""
        return self._num_loads + sum(
            each._version
            for module in self.modules()
            for each in (*module._parameters.values(), *module._buffers.values())
            if each is not None
        )

    def _load(self, state: Mapping[str, Array]) -> None:
        self._gather()
        with torch.no_grad():
            for name, tensor in self.named_state().items():
                tensor.copy_(torch.as_tensor(np.array(state[name])))


class TorchModel(TorchRLModule):
    """A user's `torch.nn.Module` as a module: takes observations, returns what `columns_of_outputs` takes.

    Args:
        spec: its spaces.
        model: what is called. One with lazy layers is called once here.
        device: where it is.
    """

    def __init__(self, spec: RLModuleSpec, model: torch.nn.Module, device: str) -> None:
        super().__init__(
            observation_space=spec.observation_space,
            action_space=spec.action_space,
            model_config=spec.model_config,
        )
        self.model = model
        if any(is_lazy(each) for each in (*model.parameters(), *model.buffers())):
            with torch.no_grad():  # lazy layers have no weights before
                obs = torch.as_tensor(_first_observation(spec.observation_space), device=device)
                self.forward_inference({Columns.OBS: obs})
            self.__dict__.pop("_num_weights", None)

    @property
    def class_name(self) -> str:
        """That of the model."""
        return type(self.model).__name__

    def _forward(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        obs = batch[Columns.OBS]
        before = _versions(obs)
        outputs = self.model(obs)
        if _versions(obs) != before:
            raise BatchError(
                f"{self.class_name} changed its observations in place, which others read too; expected a new tensor, "
                "such as obs = obs * 2 in place of obs *= 2",
                column=Columns.OBS,
            )
        return columns_of_outputs(outputs)


def _tensors_in(columns: Any) -> Iterator[Tensor]:
    """The tensors in arguments, mappings and sequences of columns."""
    if isinstance(columns, Tensor):
        yield columns
    elif isinstance(columns, Mapping | list | tuple):
        for each in columns.values() if isinstance(columns, Mapping) else columns:
            yield from _tensors_in(each)


def _first_observation(space: Any) -> Array:
    """Zeros [1, ...] for a model's first call, of the dtype that env runners store; choices as they are."""
    stored = space if is_one_hot(space) else row_space(space) if is_structured(space) else model_space(space)
    return np.zeros((1, *row_shape(space)), stored.dtype)


def _versions(obs: Any) -> list[int]:
    """A number of each tensor of an observation that grows when the tensor is changed in place."""
    if isinstance(obs, Tensor):
        return [obs._version]
    leaves = obs.values() if isinstance(obs, Mapping) else obs
    return [version for each in leaves for version in _versions(each)]


class TorchNetwork(NetworkModule, TorchRLModule, has_modes=False):
    """A neutral network as a torch module.

    Args:
        spec: its spaces and settings.
        network: what it computes.
        weights: `{name: float32 array}` in canonical order.
        device: where the parameters live.
    """

    def __init__(
        self, spec: RLModuleSpec, network: Network, weights: Mapping[str, Array], device: str
    ) -> None:
        super().__init__(**spec.arguments())
        self.network = network
        self._keys = {name: name.replace(".", "/") for name in weights}  # torch wants no dots in a name
        for name, weight in weights.items():
            self.register_parameter(self._keys[name], torch.nn.Parameter(torch.tensor(weight, device=device)))

    def named_weights(self) -> dict[str, Any]:
        """In the network's order."""
        return {name: self._parameters[key] for name, key in self._keys.items()}

    def named_state(self) -> dict[str, Any]:
        """Its weights: it has no buffers."""
        return self.named_weights()

    def in_mode(self, training: bool, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """See `RLModule.in_mode`: it has no layers."""
        self._gather()
        return forward(*args, **kwargs)

    @contextmanager
    def functional_call(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """See `RLModule.functional_call`: all its parameters are in one dict."""
        kept: dict[str, Any] = self._parameters
        own = {key: kept[key] for key in map(self._keys.__getitem__, tensors)}
        kept.update(zip(own, tensors.values(), strict=True))
        try:
            yield
        finally:
            kept.update(own)

    def _tensors(self) -> dict[str, Any]:
        return self.named_weights()

    def _count_changes(self) -> int:
        """See `RLModule._count_changes`; it is asked in each step of an environment."""
        return self._num_loads + sum(
            [each._version for each in self._parameters.values() if each is not None]
        )

    def _acting_weights(self) -> WeightsOnDemand:
        self._gather()
        return WeightsOnDemand(self.named_weights(), to_numpy)
