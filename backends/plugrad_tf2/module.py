"""RLModules of TensorFlow: the base of users' modules, and neutral networks as a module."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from plugrad.columns import Columns
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.observations import in_structure, is_structured, row_shape
from plugrad.ops import Ops
from plugrad.rl_module import LoweredColumns, NetworkModule, RLModule, WeightsOnDemand, columns_of_outputs
from plugrad.types import Array
from plugrad_tf2 import ops
from plugrad_tf2.acting import traced
from plugrad_tf2.modes import call_in_mode, takes_training
from plugrad_tf2.variables import value_of


class _Weight(NamedTuple):
    name: str
    variable: tf.Variable
    is_trained: bool
    constraint: Any


class Tf2RLModule(tf.Module, RLModule, has_modes=False):  # type: ignore[misc]
    """A `tf.Module` that a learner trains: make variables or Keras layers in `setup`, compute columns in `_forward`."""

    framework: ClassVar[str] = "tf2"
    ops: ClassVar[Ops] = ops
    _mode: bool | None = None

    def __init__(self, **spec: Any) -> None:
        tf.Module.__init__(self)
        RLModule.__init__(self, **spec)

    def named_weights(self) -> dict[str, tf.Variable]:
        """`{name: variable}` in canonical order: by name, which is where a variable is kept (`layers.0.kernel`).

        Not the variables' own names: TensorFlow calls every unnamed one `Variable`, and Keras counts its layers. The
        weights of a Keras layer are numbered in its own order, then its seeds. Variables that are not trained are
        included.
        """
        return {each.name: each.variable for each in self._listed()}

    def named_buffers(self) -> dict[str, tf.Variable]:
        """Those of `named_weights` that are not trained: statistics, seeds, frozen layers."""
        return {each.name: each.variable for each in self._listed() if not each.is_trained}

    def named_trained(self) -> dict[str, tf.Variable]:
        """Those of `named_weights` that are trained."""
        return {each.name: each.variable for each in self._listed() if each.is_trained}

    def constrained(self) -> list[str]:
        """Names of those of `named_trained` that have a constraint, such as Keras' `kernel_constraint`."""
        return [each.name for each in self._listed() if each.is_trained and each.constraint is not None]

    def _listed(self) -> list[_Weight]:
        """In canonical order; one that is kept at two places has the first name."""
        weights: dict[int, _Weight] = {}
        for each in sorted(self._found(), key=attrgetter("name")):
            weights.setdefault(id(each.variable), each)
        return list(weights.values())

    def _found(self) -> Iterator[_Weight]:
        for path, owner in self._flatten(predicate=_has_weights, with_path=True):
            name = ".".join(map(str, path))
            if isinstance(owner, tf.Variable):
                yield _Weight(name, owner, owner.trainable, owner.constraint)
            else:
                trained = {id(each) for each in owner.trainable_weights}
                for n, each in enumerate(_variables_of(owner)):
                    yield _Weight(f"{name}.{n}.{each.name}", each.value, id(each) in trained, each.constraint)

    def in_mode(self, training: bool, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """See `RLModule.in_mode`: Keras layers that are called without `training=` get this one."""
        if self._mode is not None:
            return forward(*args, **kwargs)
        self._mode = training
        try:
            return call_in_mode(training, partial(forward, *args, **kwargs))
        finally:
            self._mode = None

    def _lowered(self, forward: Callable[..., Any], batch: Mapping[str, Any], **kwargs: Any) -> Any:
        """See `RLModule._lowered`: Keras layers of dtype float32 are given the policy "mixed_bfloat16" meanwhile."""
        assert self._precision is not None
        layers = [each for each in self._keras_layers() if each.dtype_policy.name == "float32"]
        former = [each.dtype_policy for each in layers]
        try:
            for each in layers:
                each.dtype_policy = f"mixed_{self._precision}"
            return forward(LoweredColumns(self.ops, batch, self._precision), **kwargs)
        finally:
            for each, policy in zip(layers, former, strict=True):
                each.dtype_policy = policy

    def _keras_layers(self) -> list[Any]:
        """All layers, also those in other layers."""
        outer = [each for each in self._flatten(predicate=_has_weights) if not isinstance(each, tf.Variable)]
        found = {id(each): each for owner in outer for each in owner._flatten_layers()}
        return list(found.values())

    def _why_not_lowered(self) -> str:
        """See `RLModule._why_not_lowered`: only layers cast their variables."""
        in_layers = {id(each.value) for layer in self._keras_layers() for each in layer.variables}
        alone = [name for name, each in self.named_trained().items() if id(each) not in in_layers]
        if not alone:
            return ""
        return (
            f"{alone[0]!r} is a tf.Variable, and nothing casts what it computes: make it a weight of a Keras layer, "
            "which computes in its dtype policy"
        )

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """Those of `named_weights` that are trained; `tf.Module` alone would not find those of Keras layers."""
        return tuple(each for each in self.named_weights().values() if each.trainable)

    @contextmanager
    def functional_call(self, tensors: Mapping[str, Any]) -> Iterator[None]:
        """See `RLModule.functional_call`: the variables hold the tensors meanwhile, in this order in programs too."""
        variables = self.named_weights()
        own = {name: tf.identity(variables[name]) for name in tensors}
        for name, tensor in tensors.items():
            variables[name].assign(tensor)
        try:
            yield
        finally:
            for name, value in own.items():
                variables[name].assign(value)

    def new_scalar(self, value: float) -> tf.Variable:
        """See `PartsModule.new_scalar`."""
        return tf.Variable(value, dtype=tf.float32)

    @contextmanager
    def without_gradient(self, word: str) -> Iterator[None]:
        """See `PartsModule.without_gradient`: Keras layers read the present values, as constants."""
        layers = [each for name, each in vars(self).items() if name.startswith(word)]
        weights = {id(each): each for layer in layers for each in layer.variables}
        constants = [
            (each, tf.stop_gradient(tf.convert_to_tensor(each.value)))
            if each.dtype.startswith("float")
            else (each, tf.convert_to_tensor(each.value))
            for each in weights.values()
        ]
        with tf.keras.StatelessScope(state_mapping=constants):
            yield

    def get_state(self) -> dict[str, Array]:
        """`{name: numpy copy}`."""
        return {name: np.array(value_of(weight)) for name, weight in self.named_weights().items()}

    def _load(self, state: Mapping[str, Array]) -> None:
        for name, weight in self.named_weights().items():
            weight.assign(np.asarray(state[name]))


class Tf2Model(Tf2RLModule):
    """A user's Keras model or `tf.Module` as a module: takes observations, returns what `columns_of_outputs` takes.

    Args:
        spec: its spaces.
        model: is called once here, since a Keras model has no weights before its first call.
    """

    def __init__(self, spec: RLModuleSpec, model: Any) -> None:
        super().__init__(
            observation_space=spec.observation_space,
            action_space=spec.action_space,
            model_config=spec.model_config,
        )
        self.model = model
        self._takes_training = takes_training(model)
        self.in_mode(False, self._call, _first_observation(spec.observation_space))

    def _call(self, obs: Any) -> Any:
        return self.model(obs, training=self._mode) if self._takes_training else self.model(obs)

    @property
    def class_name(self) -> str:
        """That of the model."""
        return type(self.model).__name__

    def _forward(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        return columns_of_outputs(self._call(batch[Columns.OBS]))


class Tf2Network(NetworkModule, Tf2RLModule, has_modes=False):
    """A neutral network as a TensorFlow module.

    Args:
        spec: its spaces and settings.
        network: what it computes.
        weights: `{name: float32 array}` in canonical order.
        device: where the variables live.
    """

    def __init__(
        self, spec: RLModuleSpec, network: Network, weights: Mapping[str, Array], device: str
    ) -> None:
        super().__init__(**spec.arguments())
        self.network = network
        with tf.device(device):
            self._weights = {name: tf.Variable(weight, name=name) for name, weight in weights.items()}
        self._present: Mapping[str, Any] = self._weights
        self._act = traced(self._forward_inference)
        self._explore = traced(self._forward_exploration)

    def named_weights(self) -> dict[str, tf.Variable]:
        """In the network's order."""
        return dict(self._weights)

    def named_trained(self) -> dict[str, tf.Variable]:
        """All of them."""
        return self.named_weights()

    def named_buffers(self) -> dict[str, tf.Variable]:
        """None."""
        return {}

    def forward_inference(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        """See `RLModule.forward_inference`: one traced call outside of updates."""
        outputs: dict[str, Any] = (self._act if self._is_alone else self._forward_inference)(batch)
        return self.mask_outputs(outputs, batch)

    def forward_exploration(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        """See `RLModule.forward_exploration`: one traced call outside of updates."""
        outputs: dict[str, Any] = (self._explore if self._is_alone else self._forward_exploration)(batch)
        return self.mask_outputs(outputs, batch)

    def compute_values(self, batch: Mapping[str, Any]) -> Any:
        """See `RLModule.compute_values`: one traced call outside of updates."""
        return self.forward_exploration(batch)[Columns.VF_PREDS]

    @property
    def _is_alone(self) -> bool:
        """Whether it computes with its own variables, in no program that is being traced."""
        return self._present is self._weights and tf.executing_eagerly()

    @contextmanager
    def functional_call(self, tensors: Mapping[str, Any]) -> Iterator[None]:
        """See `RLModule.functional_call`: no variable is touched."""
        former = self._present
        self._present = {**former, **tensors}
        try:
            yield
        finally:
            self._present = former

    def _tensors(self) -> Mapping[str, Any]:
        return self._present

    def _why_not_lowered(self) -> str:
        return ""

    def _acting_weights(self) -> WeightsOnDemand:
        return WeightsOnDemand(self._weights, lambda weight: np.array(value_of(weight)))


def _variables_of(layer: Any) -> list[Any]:
    """Weights, then the seeds of its random numbers; not what Keras' own training measures."""
    weights = list(layer.weights)
    others = {id(each) for each in (*weights, *getattr(layer, "metrics_variables", ()))}
    return weights + [each for each in layer.variables if id(each) not in others]


def _has_weights(value: Any) -> bool:
    return isinstance(value, tf.Variable | tf.keras.layers.Layer)


def _first_observation(space: Any) -> Any:
    """Zeros [1, ...] of a space, for a model's first call."""
    if is_structured(space):
        return in_structure(ops, space, tf.zeros([1, *row_shape(space)]))
    return tf.zeros([1, *space.shape], tf.float32 if space.dtype.kind == "f" else space.dtype.name)
