"""MultiRLModule: several modules by id."""

from collections.abc import Iterator, Mapping
from typing import Any, Self

from plugrad.deprecation import with_older_names
from plugrad.errors import ConfigError, UnknownModuleError, did_you_mean
from plugrad.rl_module.rl_module import RLModule
from plugrad.rl_module.saved_weights import SavesWeights
from plugrad.rl_module.state_check import check_same_arrays, weights_of_state
from plugrad.types import Array, ModuleBatches, ModuleID, Tensor


@with_older_names
class MultiRLModule(SavesWeights, Mapping[ModuleID, RLModule]):
    """Modules by id: a mapping `{module_id: RLModule}`, such as `learner.module`.

    Args:
        modules: `{module_id: module}`.

    Attributes:
        by_id: the same as a plain dict, to read only: an update looks into it many times.
    """

    def __init__(self, modules: Mapping[ModuleID, RLModule] | None = None) -> None:
        self.by_id = dict(modules or {})
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
