"""RLModule: what every module answers, whatever its framework; MultiRLModule: several of them by id.

A backend joins this class with its framework's module class. Knows no framework.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, ClassVar, Self

import gymnasium as gym

from plugrad.adapters import Adaptable
from plugrad.columns import Columns
from plugrad.deprecation import renamed
from plugrad.distributions import Distribution, distribution_class
from plugrad.errors import ConfigError, RestoreMismatchError, UnknownModuleError, did_you_mean
from plugrad.networks import Network
from plugrad.ops import Ops
from plugrad.rl_module.modes import keep_modes
from plugrad.rl_module.saved_weights import SavesWeights
from plugrad.types import COMPONENT_RL_MODULE, DEFAULT_MODULE_ID, Array, ModuleID, Tensor


class RLModule(SavesWeights, Adaptable):
    """A policy (and value) network: override `setup` and `_forward`, or `_forward_train` and its siblings.

    Args:
        observation_space: of one observation.
        action_space: of one action.
        model_config: the settings of the spec.
        inference_only: leave out what only training needs.
    """

    framework: ClassVar[str]
    ops: ClassVar[Ops]
    network: Network | None = None
    """The neutral network behind this module, if it has one: acting may then run it in numpy."""
    _made_by: Any = None
    """The `module_class` that made the model in this module, if it is a model that was adopted."""

    def __init_subclass__(cls, *, has_modes: bool = True, **kwargs: Any) -> None:
        """A subclass's methods run in their modes; `has_modes=False`: its layers have none, so nothing is set."""
        super().__init_subclass__(**kwargs)
        if has_modes and cls.in_mode is not RLModule.in_mode:
            keep_modes(cls)

    _num_loads = 0
    """How often weights were loaded: who keeps a copy of them takes a new one."""

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
        """Make the layers; spaces and `model_config` are set."""

    def forward_inference(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Columns for acting greedily: at least `ACTION_DIST_INPUTS` [B, inputs]."""
        return self._forward_inference(batch, **kwargs)

    def forward_exploration(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Columns for acting while data is collected."""
        return self._forward_exploration(batch, **kwargs)

    def forward_train(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Columns for the loss, in training mode. Traced in compiled modes."""
        return self._forward_train(batch, **kwargs)

    def _forward(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        raise NotImplementedError(
            f"{type(self).__name__} has no _forward(batch): write it, or _forward_train"
        )

    def _forward_inference(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        return self._forward(batch, **kwargs)

    def _forward_exploration(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        return self._forward(batch, **kwargs)

    def _forward_train(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        return self._forward(batch, **kwargs)

    def in_mode(self, training: bool, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`forward(*args, **kwargs)` with the layers of this module in training mode or in inference mode.

        `forward_train` runs in training mode; `forward_exploration`, `forward_inference` and `compute_values` in
        inference mode. Where one of them calls another, the outermost call decides. The former mode is put back,
        whatever is raised. A backend whose layers have modes overrides this in its module class; here there are none.

        Args:
            training: which of the two.
            forward: what to call.
        """
        return forward(*args, **kwargs)

    def functional_call(self, tensors: Mapping[str, Tensor]) -> AbstractContextManager[None]:
        """Compute with these tensors in place of the parameters of these names, while the context lasts.

        Args:
            tensors: `{parameter name: tensor of its shape}`; the others stay, also those of an outer call.

        Raises:
            ConfigError: a module of this kind cannot, so it can have no target network.
        """
        raise ConfigError(
            f"{type(self).__name__} cannot compute with other weights than its own, so it can have no target network: "
            "its class must have functional_call(tensors)"
        )

    lend = renamed("functional_call")

    def compute_values(self, batch: Mapping[str, Tensor]) -> Tensor:
        """State values [B], in inference mode; from `forward_train` unless a module knows better."""
        return self.forward_train(batch)[Columns.VF_PREDS]

    def unwrapped(self) -> "RLModule":
        """Itself: nothing wraps a module here."""
        return self

    def as_multi_rl_module(self) -> "MultiRLModule":
        """This module, weights and all, as the only one of several, under `DEFAULT_MODULE_ID`."""
        return MultiRLModule({DEFAULT_MODULE_ID: self})

    @property
    def is_stateful(self) -> bool:
        """Whether the module carries a recurrent state."""
        return bool(self.get_initial_state())

    def get_initial_state(self) -> dict[str, Any]:
        """The recurrent state at the start of an episode, `{name: array}`; empty for a module without one.

        Arrays or tensors without batch dimension. A stateful module computes on sequences: `batch["obs"]` is
        [B, T, ...], and `batch["state_in"]` has `{name: [B, ...]}`, the states that they begin with; it returns
        `state_out`, the same after the last step, and all other columns as [B, T, ...].
        """
        return self.network.initial_state() if self.network is not None else {}

    def get_train_action_dist_cls(self) -> type[Distribution]:
        """The class whose `from_logits` takes `ACTION_DIST_INPUTS`, over this backend's ops."""
        if self.action_space is None:
            raise ConfigError(f"{type(self).__name__} has no action_space to make a distribution for")
        return distribution_class(self.action_space, self.ops)

    def get_exploration_action_dist_cls(self) -> type[Distribution]:
        """As `get_train_action_dist_cls`, for acting while data is collected."""
        return self.get_train_action_dist_cls()

    def get_inference_action_dist_cls(self) -> type[Distribution]:
        """As `get_train_action_dist_cls`, for acting greedily."""
        return self.get_train_action_dist_cls()

    def get_state(self) -> dict[str, Array]:
        """`{parameter name: numpy copy}`, in canonical order; empty for a module without parameters."""
        return {}

    def _load(self, state: Mapping[str, Array]) -> None:
        """Take over arrays of the names and shapes that `get_state` gives."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Load exactly these weights; `{"rl_module": weights}` works too.

        Raises:
            RestoreMismatchError: names, shapes or dtypes differ; all differences are listed, nothing is changed.
        """
        weights = _weights_in(state)
        check_same_arrays(self.get_state(), weights, where=type(self).__name__)
        self._load(weights)
        self._num_loads += 1


_LISTED = 1000
"""Entries of a state that an error names; a stranger's file may have millions."""


def check_same_arrays(have: Mapping[str, Any], given: Any, *, where: str) -> None:
    """Raise `RestoreMismatchError` listing every missing, unexpected and mis-shaped entry of a nested dict.

    Args:
        have: what is there: arrays and plain values; shapes, dtypes and types count.
        given: what shall take its place.
        where: what errors call it.
    """
    found: dict[str, list[str]] = {"missing": [], "unexpected": [], "mismatched": []}
    _compare({"": have}, {"": given}, "", found)
    if any(found.values()):
        listed = "; ".join(f"{kind}: {_listed(names)}" for kind, names in found.items() if names)
        raise RestoreMismatchError(f"the state does not fit {where}: {listed}. Nothing was changed.", **found)


def _listed(names: list[str]) -> str:
    return ", ".join(names) + (", and perhaps more" if len(names) >= _LISTED else "")


def _compare(
    have: Mapping[str, Any], given: Mapping[str, Any], path: str, found: dict[str, list[str]]
) -> None:
    for name in {**have, **given}:
        place = f"{path}/{name}" if path else str(name)
        if name not in given:
            _add(found["missing"], _leaves(have[name], place))
        elif name not in have:
            _add(found["unexpected"], _leaves(given[name], place))
        elif isinstance(have[name], Mapping) and isinstance(given[name], Mapping):
            _compare(have[name], given[name], place, found)
        elif _describe(have[name]) != _describe(given[name]):
            difference = f"{place} (expected {_describe(have[name])}, found {_describe(given[name])})"
            _add(found["mismatched"], [difference])


def _add(names: list[str], more: Iterable[str]) -> None:
    names += islice(more, _LISTED - len(names))


def _leaves(value: Any, place: str) -> Iterator[str]:
    if not isinstance(value, Mapping) or not value:
        yield place
        return
    for name, each in value.items():
        yield from _leaves(each, f"{place}/{name}")


def _describe(value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return type(value).__name__ if shape is None or dtype is None else f"{dtype}{list(shape)}"


def columns_of(outputs: Any) -> dict[str, Tensor]:
    """What a user's model returned, as columns: `{column: tensor}`, `(inputs, values)`, or `inputs` alone.

    Args:
        outputs: inputs of the action distribution [B, inputs], values [B] or [B, 1].
    """
    if isinstance(outputs, Mapping):
        return dict(outputs)
    inputs, *values = outputs if isinstance(outputs, tuple | list) else (outputs,)
    columns = {Columns.ACTION_DIST_INPUTS: inputs}
    if values:
        columns[Columns.VF_PREDS] = values[0][..., 0] if len(values[0].shape) > 1 else values[0]
    return columns


class MultiRLModule(SavesWeights, Mapping[ModuleID, RLModule]):
    """Modules by id.

    Args:
        modules: `{module_id: module}`.
    """

    def __init__(self, modules: Mapping[ModuleID, RLModule] | None = None) -> None:
        self._modules = dict(modules or {})
        self._of_learner = False

    def of_learner(self) -> Self:
        """Itself, from now on a learner's: it alone adds and removes modules, together with their optimizers."""
        self._of_learner = True
        return self

    def __getitem__(self, module_id: ModuleID) -> RLModule:
        try:
            return self._modules[module_id]
        except KeyError:
            known = ", ".join(self._modules) or "none"
            raise UnknownModuleError(
                f"no module {module_id!r}; there are: {known}.{did_you_mean(str(module_id), self._modules)}",
                module_id=module_id,
                known=list(self._modules),
            ) from None

    def __iter__(self) -> Iterator[ModuleID]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def as_multi_rl_module(self) -> "MultiRLModule":
        """Itself."""
        return self

    def add_module(self, module_id: ModuleID, module: RLModule, *, override: bool = False) -> None:
        """Put a module among them.

        Raises:
            ConfigError: the id is taken and not `override`, or these are a learner's modules.
        """
        self._check_free("add_module(module_id=..., module_spec=...)")
        if module_id in self._modules and not override:
            raise ConfigError(
                f"module {module_id!r} is there already: type override=True to put this in its place"
            )
        self._modules[module_id] = module

    def remove_module(self, module_id: ModuleID) -> RLModule:
        """Take a module out; returns it.

        Raises:
            UnknownModuleError: there is no such module.
            ConfigError: these are a learner's modules.
        """
        self._check_free("remove_module(module_id)")
        module = self[module_id]
        del self._modules[module_id]
        return module

    def _check_free(self, call: str) -> None:
        if self._of_learner:
            raise ConfigError(
                f"these modules belong to a learner, and have optimizers there: type learner.{call}"
            )

    def forward_train(
        self, batch: Mapping[ModuleID, Mapping[str, Tensor]]
    ) -> dict[ModuleID, dict[str, Tensor]]:
        """`{module_id: columns for the loss}` of `{module_id: columns}`."""
        return {module_id: self[module_id].forward_train(columns) for module_id, columns in batch.items()}

    def forward_exploration(
        self, batch: Mapping[ModuleID, Mapping[str, Tensor]]
    ) -> dict[ModuleID, dict[str, Tensor]]:
        """As `forward_train`, for acting while data is collected."""
        return {
            module_id: self[module_id].forward_exploration(columns) for module_id, columns in batch.items()
        }

    def forward_inference(
        self, batch: Mapping[ModuleID, Mapping[str, Tensor]]
    ) -> dict[ModuleID, dict[str, Tensor]]:
        """As `forward_train`, for acting greedily."""
        return {module_id: self[module_id].forward_inference(columns) for module_id, columns in batch.items()}

    def get_state(self) -> dict[ModuleID, dict[str, Array]]:
        """`{module_id: {parameter name: numpy copy}}`."""
        return {module_id: module.get_state() for module_id, module in self._modules.items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Load the weights of the modules named in `state`, or of none of them.

        Raises:
            UnknownModuleError: a module id that is not here.
            RestoreMismatchError: as `RLModule.set_state`, before anything is changed.
        """
        weights = _weights_in(state)
        for module_id, arrays in weights.items():
            check_same_arrays(self[module_id].get_state(), arrays, where=f"module {module_id!r}")
        for module_id, arrays in weights.items():
            self[module_id].set_state(arrays)


def _weights_in(state: Any) -> Mapping[str, Any]:
    """Weights themselves, or those under "rl_module" of a larger state."""
    weights = state.get(COMPONENT_RL_MODULE, state) if isinstance(state, Mapping) else state
    if not isinstance(weights, Mapping):
        raise RestoreMismatchError(
            f"weights are a dict, found {type(weights).__name__}. Nothing was changed."
        )
    return weights


def check_spec_spaces(observation_space: Any, action_space: Any, module_id: ModuleID) -> None:
    """Raise `ConfigError` if a module is asked for without spaces."""
    for name, space in (("observation_space", observation_space), ("action_space", action_space)):
        if not isinstance(space, gym.Space):
            raise ConfigError(
                f"module {module_id!r} has no {name} (found {space!r}): give it in RLModuleSpec, "
                "config.environment(...), or spaces={module_id: (observation_space, action_space)}"
            )
