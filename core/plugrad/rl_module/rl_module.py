"""The classes of modules: `RLModule`, the interface of a policy and value network for any framework, `NetworkModule`,
the base of the backends' classes, and `MultiRLModule`, several modules by id."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from copy import copy
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np

import plugrad.numpy_ops as numpy_ops
from plugrad.columns import Columns
from plugrad.deprecation import with_older_names
from plugrad.distributions import Distribution, distribution_class, mask_logits
from plugrad.errors import ConfigError, UnknownModuleError, did_you_mean
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.observations import in_structure, is_structured
from plugrad.ops import Ops
from plugrad.rl_module.modes import keep_modes
from plugrad.rl_module.outputs import check_outputs
from plugrad.rl_module.precision import LoweredColumns, in_float32, lowered_ops
from plugrad.rl_module.weights import SavesWeights, check_same_arrays, weights_of_state
from plugrad.types import DEFAULT_MODULE_ID, Array, ModuleBatches, ModuleID, Tensor


@with_older_names
class RLModule(SavesWeights):
    """A policy (and value) network that a learner trains and that acts in env runners.

    Derive from your backend's class, such as `TorchRLModule`. Make the layers in `setup`. Compute columns in
    `_forward`, or in `_forward_train`, `_forward_exploration` and `_forward_inference` if these differ. A batch is
    `{column: tensor}` with leading dimension B, or [B, T] for a stateful module; see `plugrad.Columns` for the names.
    Observations of a Dict or Tuple space are dicts or tuples of float32 tensors [B, ...], with discrete parts one-hot.

        class MyModule(TorchRLModule):
            def setup(self):
                self.pi = torch.nn.Linear(4, 2)

            def _forward(self, batch, **kwargs):
                return {Columns.ACTION_DIST_INPUTS: self.pi(batch[Columns.OBS])}

    Args:
        observation_space: space of one observation, without batch dimension.
        action_space: space of one action.
        model_config: settings of the network, as in `RLModuleSpec`.
        inference_only: build without what only training needs (the value network).

    Attributes:
        framework: the backend's short name, such as "torch".
        ops: the backend's tensor functions; numpy's for a module without a framework.
        network: the built-in network that this module runs, or None. Acting may run such a network in numpy.
        action_dist_cls: the class of its action distributions, set in `setup`; of the width that the action space asks
            for if it has no `input_dim`. None: the network's or the action space's. A `get_..._action_dist_cls` that is
            overridden comes first.
    """

    framework: ClassVar[str]
    ops: ClassVar[Ops] = numpy_ops
    network: Network | None = None
    action_dist_cls: Any = None
    _made_by: Any = None
    """The user's `module_class` that made the wrapped model, if this module wraps one."""
    _num_loads = 0
    """How often weights were loaded."""
    _forward_pass: Callable[..., dict[str, Tensor]] | None = None
    """What `forward_train` calls in place of `_forward_train`: while a step runs in which a backend compiles it."""
    _precision: str | None = None
    """The dtype in which `forward_train` computes while a step runs, such as "bfloat16"; None: float32."""

    def __init_subclass__(cls, *, has_modes: bool = True, **kwargs: Any) -> None:
        """Make the subclass's methods set training or inference mode.

        Args:
            has_modes: False for a class whose layers have no modes and which reads observations as rows.
            **kwargs: passed to the next class.
        """
        super().__init_subclass__(**kwargs)
        if has_modes:
            keep_modes(cls)

    def __init__(
        self,
        *,
        observation_space: gym.Space[Any] | None = None,
        action_space: gym.Space[Any] | None = None,
        model_config: Mapping[str, Any] | None = None,
        inference_only: bool = False,
    ) -> None:
        super().__init__()
        self.observation_space = observation_space
        self.action_space = action_space
        self.model_config = dict(model_config or {})
        self.inference_only = inference_only
        self.setup()

    def setup(self) -> None:
        """Make the layers. Called at the end of `__init__`, when the spaces and `model_config` are set."""

    def observations_in_structure(self, rows: Tensor) -> Any:
        """Rows of observations in the structure of a Dict or Tuple space, as a model of your own gets them.

        ```python
        speed = learner.module[module_id].observations_in_structure(batch["new_obs"])["speed"]
        ```

        Args:
            rows: [B, numbers] or [B, T, numbers], such as the columns `obs` and `new_obs` of a batch.

        Returns:
            Dicts and tuples of float32 tensors [B, ...] or [B, T, ...]: Boxes have their shape, images are not scaled,
            discrete parts are one-hot. What is structured already, and rows of a space without parts, are unchanged.
        """
        space = self.observation_space
        if isinstance(rows, Mapping | tuple) or space is None or not is_structured(space):
            return rows
        return in_structure(numpy_ops if isinstance(rows, np.ndarray) else self.ops, space, rows)

    def _move_to(self, device: str) -> None:
        """Put the weights on a device.

        A learner calls it with its own device when it gets the module, before it reads weights.

        Args:
            device: the backend's name of it.
        """

    def forward_inference(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Compute the columns for acting greedily, in inference mode. Override `_forward_inference`.

        Args:
            batch: `{column: tensor}`, at least OBS [B, ...].
            **kwargs: `rng`, a numpy generator, for a module that draws its actions in numpy.

        Returns:
            `{column: tensor}`, at least ACTION_DIST_INPUTS [B, inputs], or ACTIONS [B, ...] themselves.
        """
        outputs = self._forward_inference(batch, **kwargs)
        return self.mask_outputs(self._checked(outputs, batch, self.get_inference_action_dist_cls), batch)

    def forward_exploration(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Compute the columns for acting while data is collected, in inference mode. Override `_forward_exploration`.

        Args:
            batch: `{column: tensor}`, at least OBS [B, ...].
            **kwargs: `rng`, a numpy generator, for a module that draws its actions in numpy.

        Returns:
            `{column: tensor}`, at least ACTION_DIST_INPUTS [B, inputs], or ACTIONS [B, ...] themselves.
        """
        outputs = self._forward_exploration(batch, **kwargs)
        return self.mask_outputs(self._checked(outputs, batch, self.get_exploration_action_dist_cls), batch)

    def forward_train(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Compute the columns for the loss, in training mode. Override `_forward_train`.

        Compiled update modes trace this method: only use tensor functions, and no Python `if` on a tensor's value.

        Args:
            batch: `{column: tensor}`, at least OBS [B, ...].
            **kwargs: passed to `_forward_train`; learners give none.

        Returns:
            `{column: tensor}`: what the loss reads, such as ACTION_DIST_INPUTS [B, inputs] and VF_PREDS [B].
        """
        forward = self._forward_pass or self._forward_train
        if self._precision is None:
            outputs = forward(batch, **kwargs)
        else:
            outputs = in_float32(self.ops, self._lowered(forward, batch, **kwargs))
        return self.mask_outputs(self._checked(outputs, batch, self.get_train_action_dist_cls), batch)

    def _lowered(self, forward: Callable[..., Any], batch: Mapping[str, Tensor], **kwargs: Any) -> Any:
        """Run a forward pass in the dtype `self._precision`. A backend's class for users' models overrides this.

        Args:
            forward: `_forward_train`, or a backend's compiled one.
            batch: its columns; floats are float32.
            **kwargs: of the forward pass.

        Returns:
            The outputs; floats may be of either dtype.
        """
        return forward(batch, **kwargs)

    def _why_not_lowered(self) -> str:
        """Why its forward pass cannot run in bfloat16; "" if it can. Asked once, when a learner is built."""
        return ""

    def _checked(
        self,
        outputs: dict[str, Tensor],
        batch: Mapping[str, Tensor],
        distribution: Callable[[], type[Distribution]],
    ) -> dict[str, Tensor]:
        """Check the outputs of a user's module; those of a built-in network are returned unchanged."""
        return outputs if self.network is not None else check_outputs(self, outputs, batch, distribution)

    @property
    def class_name(self) -> str:
        """The name of the user's class, for errors: the model's, if this module wraps one."""
        return type(self).__name__

    def _forward(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """The computation of all three forward methods, unless these are overridden separately."""
        raise NotImplementedError(
            f"{type(self).__name__} has no _forward(batch): write it, or _forward_train"
        )

    def _forward_inference(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        return self._forward(batch, **kwargs)

    def _forward_exploration(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        return self._forward(batch, **kwargs)

    def _forward_train(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        return self._forward(batch, **kwargs)

    def mask_outputs(self, outputs: dict[str, Tensor], batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Give forbidden actions no probability. Called at the end of each forward pass. Traced.

        Args:
            outputs: the outputs of the forward pass.
            batch: its input.

        Returns:
            The outputs, with ACTION_DIST_INPUTS masked (`plugrad.distributions.mask_logits`) if the batch has an
            ACTION_MASK [B, choices].
        """
        if Columns.ACTION_MASK not in batch or Columns.ACTION_DIST_INPUTS not in outputs:
            return outputs
        masked = mask_logits(self.ops, outputs[Columns.ACTION_DIST_INPUTS], batch[Columns.ACTION_MASK])
        outputs = copy(outputs)
        outputs[Columns.ACTION_DIST_INPUTS] = masked
        return outputs

    def in_mode(self, training: bool, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function with this module's layers in training mode or in inference mode.

        `forward_train` runs in training mode; `forward_exploration`, `forward_inference` and `compute_values` run in
        inference mode. In nested calls the outermost one decides. The mode from before the call is restored, even after
        an error. A backend whose layers have modes overrides this method; here the function is just called.

        Args:
            training: True for training mode.
            forward: the function to call.
            *args: its arguments.
            **kwargs: its keyword arguments.

        Returns:
            What `forward` returns.
        """
        return forward(*args, **kwargs)

    def functional_call(self, tensors: Mapping[str, Tensor]) -> AbstractContextManager[None]:
        """A context in which this module computes with other tensors instead of its parameters.

        Target networks use it. Nested contexts add up.

        Args:
            tensors: `{parameter name: tensor with the parameter's shape}`; other parameters stay.

        Raises:
            ConfigError: this kind of module has no such context, so it cannot have a target network.
        """
        raise ConfigError(
            f"{type(self).__name__} cannot compute with other weights than its own, so it can have no target network: "
            "its class must have functional_call(tensors)"
        )

    def compute_values(self, batch: Mapping[str, Tensor]) -> Tensor:
        """State values of a batch, in inference mode: the column VF_PREDS of `forward_train`.

        Args:
            batch: `{column: tensor}`, at least OBS [B, ...]; for a stateful module OBS [B, T, ...] and STATE_IN.

        Returns:
            float32 [B]; for a stateful module [B, T].

        Raises:
            MissingColumnError: a user's module returned no VF_PREDS.
        """
        return self.forward_train(batch)[Columns.VF_PREDS]

    def unwrapped(self) -> "RLModule":
        """This module itself: plugrad does not wrap modules. For code written for RLlib."""
        return self

    def as_multi_rl_module(self) -> "MultiRLModule":
        """A `MultiRLModule` that has this module (not a copy) under `DEFAULT_MODULE_ID`."""
        return MultiRLModule({DEFAULT_MODULE_ID: self})

    @property
    def is_stateful(self) -> bool:
        """Whether the module has a recurrent state."""
        return bool(self.get_initial_state())

    def get_initial_state(self) -> dict[str, Any]:
        """The recurrent state at the start of an episode: `{name: array}` without batch dimension; empty without one.

        A module with a state computes on sequences: `batch["obs"]` is [B, T, ...], and `batch["state_in"]` is
        `{name: tensor [B, ...]}`, the state before the first step. It returns `state_out`, the state after the last
        step in the same form, and all other columns as [B, T, ...].
        """
        return self.network.initial_state() if self.network is not None else {}

    def get_train_action_dist_cls(self) -> type[Distribution]:
        """The action distribution class for `forward_train`: its `from_logits` takes ACTION_DIST_INPUTS.

        By default `action_dist_cls`, if `setup` sets it, else the network's (`Network.distribution_class`), or the
        action space's. Override it for another one:

            def get_train_action_dist_cls(self):
                return squashed_gaussian_class(self.action_space, self.ops)

        Raises:
            ConfigError: the module has no action space, there is no distribution for it, or `action_dist_cls` is none.
        """
        if (own := self.action_dist_cls) is not None:
            if not (isinstance(own, type) and issubclass(own, Distribution)):
                raise ConfigError(
                    f"{type(self).__name__}.action_dist_cls is {own!r}: it must be a subclass of "
                    "plugrad.distributions.Distribution, such as Categorical or squashed_gaussian_class("
                    "self.action_space, self.ops)"
                )
            if hasattr(own, "input_dim") or self.action_space is None:
                return own.bind(self.ops)
            like = distribution_class(self.action_space, self.ops)
            return own.bind(self.ops, input_dim=like.input_dim, action_shape=like.action_shape)
        if self.action_space is None:
            raise ConfigError(f"{type(self).__name__} has no action_space to make a distribution for")
        if self.network is not None:
            return self.network.distribution_class(self.action_space, self.ops)
        return distribution_class(self.action_space, self.ops)

    def get_exploration_action_dist_cls(self) -> type[Distribution]:
        """The action distribution class for `forward_exploration`; by default that of `forward_train`."""
        return self.get_train_action_dist_cls()

    def get_inference_action_dist_cls(self) -> type[Distribution]:
        """The action distribution class for `forward_inference`; by default that of `forward_train`."""
        return self.get_train_action_dist_cls()

    def get_state(self) -> dict[str, Array]:
        """The weights: `{parameter name: numpy copy}`, in canonical order; empty for a module without parameters."""
        return {}

    def _acting_weights(self) -> Mapping[str, Array]:
        """The weights of a built-in network that acts in numpy; called after each update."""
        return self.get_state()

    def _count_changes(self) -> int:
        """A number that grows when weights are loaded; code that holds a copy of them compares it."""
        return self._num_loads

    def _load(self, state: Mapping[str, Array]) -> None:
        """Assign arrays with the names and shapes that `get_state` returns."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Load weights; they must have exactly the entries that `get_state` returns.

        Args:
            state: `{parameter name: array}`, or a dict with these under "rl_module".

        Raises:
            RestoreMismatchError: names, shapes or dtypes differ; all differences are listed. Nothing is changed.
        """
        weights = weights_of_state(state)
        check_same_arrays(self.get_state(), weights, where=type(self).__name__)
        self._load(weights)
        self._num_loads += 1


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


@with_older_names
class MultiRLModule(SavesWeights, Mapping[ModuleID, RLModule]):
    """Modules by id: a mapping `{module_id: RLModule}`, such as `learner.module`.

    Args:
        modules: `{module_id: module}`.
        rl_module_specs: `{module_id: spec}` of modules to build beside them, as by `RLModuleSpec.build`.

    Attributes:
        by_id: the same as a plain dict, to read only: an update looks into it many times.
    """

    def __init__(
        self,
        modules: Mapping[ModuleID, RLModule] | None = None,
        *,
        rl_module_specs: Mapping[ModuleID, RLModuleSpec] | None = None,
    ) -> None:
        built = {module_id: spec.build() for module_id, spec in (rl_module_specs or {}).items()}
        self.by_id: dict[ModuleID, RLModule] = {**(modules or {}), **built}
        self._of_learner = False

    def of_learner(self) -> Self:
        """Mark these modules as a learner's: from now on only the learner adds and removes modules."""
        self._of_learner = True
        return self

    def __getitem__(self, module_id: ModuleID) -> RLModule:
        try:
            return self.by_id[module_id]
        except KeyError:
            known = ", ".join(self.by_id) or "none"
            raise UnknownModuleError(
                f"no module {module_id!r}; there are: {known}.{did_you_mean(str(module_id), self.by_id)}",
                module_id=module_id,
                known=list(self.by_id),
            ) from None

    def __contains__(self, module_id: object) -> bool:
        return module_id in self.by_id

    def __iter__(self) -> Iterator[ModuleID]:
        return iter(self.by_id)

    def __len__(self) -> int:
        return len(self.by_id)

    def as_multi_rl_module(self) -> "MultiRLModule":
        """This object itself."""
        return self

    def add_module(self, module_id: ModuleID, module: RLModule, *, override: bool = False) -> None:
        """Add a module. The modules of a learner are changed by `Learner.add_module`.

        Args:
            module_id: the new module's id.
            module: the module.
            override: replace the module that has this id.

        Raises:
            ConfigError: the id is taken and `override` is False, or the modules belong to a learner.
        """
        self._check_not_of_learner("add_module(module_id=..., module_spec=...)")
        if module_id in self.by_id and not override:
            raise ConfigError(
                f"module {module_id!r} is there already: type override=True to put this in its place"
            )
        self.by_id[module_id] = module

    def remove_module(self, module_id: ModuleID) -> RLModule:
        """Remove a module and return it. The modules of a learner are changed by `Learner.remove_module`.

        Raises:
            UnknownModuleError: there is no such module.
            ConfigError: the modules belong to a learner.
        """
        self._check_not_of_learner("remove_module(module_id)")
        module = self[module_id]
        del self.by_id[module_id]
        return module

    def _check_not_of_learner(self, call: str) -> None:
        if self._of_learner:
            raise ConfigError(
                f"these modules belong to a learner, and have optimizers there: type learner.{call}"
            )

    def forward_train(self, batch: ModuleBatches) -> dict[ModuleID, dict[str, Tensor]]:
        """Compute each module's columns for the loss: `RLModule.forward_train` of `{module_id: columns}`."""
        return {module_id: self[module_id].forward_train(columns) for module_id, columns in batch.items()}

    def forward_exploration(self, batch: ModuleBatches) -> dict[ModuleID, dict[str, Tensor]]:
        """Compute each module's columns for exploring: `RLModule.forward_exploration` of `{module_id: columns}`."""
        return {
            module_id: self[module_id].forward_exploration(columns) for module_id, columns in batch.items()
        }

    def forward_inference(self, batch: ModuleBatches) -> dict[ModuleID, dict[str, Tensor]]:
        """Compute each module's columns for acting greedily: `RLModule.forward_inference` of `{module_id: columns}`."""
        return {module_id: self[module_id].forward_inference(columns) for module_id, columns in batch.items()}

    def get_state(self) -> dict[ModuleID, dict[str, Array]]:
        """The weights: `{module_id: {parameter name: numpy copy}}`."""
        return {module_id: module.get_state() for module_id, module in self.by_id.items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Load the weights of the modules in `state`; all are checked before any is changed.

        Args:
            state: `{module_id: {parameter name: array}}`, or a dict with these under "rl_module".

        Raises:
            UnknownModuleError: `state` has a module that is not here.
            RestoreMismatchError: names, shapes or dtypes differ. Nothing is changed.
        """
        weights = weights_of_state(state)
        for module_id, arrays in weights.items():
            check_same_arrays(self[module_id].get_state(), arrays, where=f"module {module_id!r}")
        for module_id, arrays in weights.items():
            self[module_id].set_state(arrays)
