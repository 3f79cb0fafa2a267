"""The Learner as hooks, losses, connectors and backends see it: its attributes and methods, with their types.

    from plugrad import LearnerProtocol, hookimpl

    @hookimpl
    def compute_loss_for_module(learner: LearnerProtocol, batch, fwd_out):
        return learner.ops.mean(learner.ops.square(fwd_out["vf_preds"] - batch["value_targets"]))

A `plugrad.Learner` is a `LearnerProtocol`; so is any other object with these members, such as a test's own.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from plugrad.batch import Batch
from plugrad.collective import Collective
from plugrad.gradients import FlatVariable, Layout
from plugrad.hooks.algorithm_spec import AlgorithmSpec
from plugrad.hooks.backend_spec import BackendSpec, Capability
from plugrad.hooks.gradient_spec import GradientSpec
from plugrad.hooks.learner_spec import LearnerSpec
from plugrad.metrics import Metrics
from plugrad.ops import Ops, Variable
from plugrad.optimizers import Optimizer
from plugrad.rl_module import MultiRLModule
from plugrad.schedules import Coefficients, Schedule
from plugrad.types import DEFAULT_MODULE_ID, Array, ModuleID, ParamRef, Tensor


class TargetNetworkProtocol(Protocol):
    """A target network; see `plugrad.learner.update.target_networks.TargetNetwork`."""

    @property
    def variable(self) -> Variable:
        """The copied parameters, one flat vector."""

    def forward(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run the module's `forward_train` on `{column: [B, ...]}` with the copied parameters. Traced."""

    def update(self, *, tau: Any = 1.0, every: int = 0, now: int = 0, counted: str = ...) -> bool:
        """Set the target to tau * parameters + (1 - tau) * target, if it is due. See `TargetNetwork.update`."""

    def get_state(self) -> dict[str, Array]:
        """Copies of the values by parameter name."""


@dataclass(frozen=True, eq=False)
class RegisteredOptimizer:
    """One optimizer of a learner.

    Args:
        module_id: the id under which it was registered; `ALL_MODULES` if modules share it.
        name: short name, unique within the module.
        optimizer: the object that was registered: of `plugrad.optimizers`, or the framework's own.
        optimizer_adapter: the same with the interface of `plugrad.optimizers.Optimizer`.
        refs: names of its parameters.
        modules: ids of the modules that have any of them; a parameter that modules share is named after the first.
        schedule: the schedule of its learning rate; None leaves the learning rate to the user.
    """

    module_id: ModuleID
    name: str
    optimizer: Any
    optimizer_adapter: Optimizer
    refs: tuple[ParamRef, ...]
    modules: frozenset[ModuleID]
    schedule: Schedule | None

    @property
    def full_name(self) -> str:
        """`<module id>_<name>`."""
        return f"{self.module_id}_{self.name}"

    @cached_property
    def layout(self) -> Layout:
        """The layout of its flat parameters."""
        return self.parameters.layout

    @cached_property
    def parameters(self) -> FlatVariable:
        """The flat parameters that it steps."""
        return self.optimizer_adapter.parameters


class LearnerProtocol(BackendSpec, GradientSpec, AlgorithmSpec, LearnerSpec, Protocol):
    """A built learner. Its hook methods are those of `AlgorithmSpec`, `LearnerSpec`, and so on."""

    # --- what it has ----------------------------------------------------------------------------------------

    @property
    def module(self) -> MultiRLModule:
        """All modules, by id."""

    @property
    def ops(self) -> Ops:
        """The tensor functions of the backend."""

    @property
    def device(self) -> str:
        """The device of variables and batches, as the framework names it."""

    @property
    def seed(self) -> int:
        """The seed of all random streams."""

    @property
    def metrics(self) -> Metrics:
        """The metrics of the current or last update."""

    @property
    def registered_optimizers(self) -> Mapping[str, RegisteredOptimizer]:
        """`{"<module id>_<optimizer name>": optimizer}`, in registration order."""

    @property
    def targets(self) -> Mapping[ModuleID, TargetNetworkProtocol]:
        """The target networks of the modules that have one."""

    @property
    def buffers(self) -> Mapping[ModuleID, Mapping[str, Variable]]:
        """What modules keep besides trained parameters; under `ALL_MODULES` what plugins registered."""

    @property
    def coefficients(self) -> Mapping[ModuleID, Coefficients]:
        """The settings that change between updates, as variables: `coefficients[module_id]["entropy_coeff"]`."""

    @property
    def counters(self) -> dict[str, int]:
        """Numbers that are saved with the learner; an algorithm may add its own."""

    @property
    def connectors(self) -> Sequence[Callable[..., Any]]:
        """The pieces that turn episodes into a batch."""

    @property
    def collective(self) -> Collective | None:
        """The connection to the other learners of a group; None: it is alone."""

    @property
    def weights(self) -> Mapping[ModuleID, Tensor] | None:
        """This learner's share [1] of the current minibatch's rows of each module, while a step of a group runs."""

    @property
    def weights_version(self) -> int:
        """A number that grows with every change of the weights."""

    @property
    def update_mode(self) -> str:
        """How the last update ran, and why."""

    @property
    def trainable_module_ids(self) -> list[ModuleID]:
        """Modules that the backend can train; others have no optimizer."""

    @property
    def layouts(self) -> list[Layout]:
        """The flat layouts of all optimizers, in registration order."""

    @property
    def is_guarded(self) -> bool:
        """Whether the current step must change nothing if it is not finite."""

    def freeze_parameters(self, module_id: ModuleID, names: Collection[str]) -> None:
        """Name parameters or layers that no optimizer has to step; see `plugrad.Learner.freeze_parameters`."""

    def register_state(self, name: str, initial: Any, *, dtype: str | None = None) -> Variable:
        """Register a variable that is saved and undone with the learner; see `plugrad.Learner.register_state`."""

    # --- losses and metrics ---------------------------------------------------------------------------------

    def guard(self, new: Tensor, old: Tensor) -> Tensor:
        """Choose the value to keep after a step, for `apply_gradients` of a backend or a plugin.

        Args:
            new: the value after the step.
            old: the value before it.

        Returns:
            `old` if `nonfinite="skip"` and this minibatch is not finite, else `new`.
        """

    def register_metric(self, module_id: ModuleID, key: str, value: Any) -> None:
        """Report a value.

        Args:
            module_id: the module, or `ALL_MODULES`.
            key: the value's name in the results.
            value: inside a loss a scalar tensor, elsewhere a number or an array.

        Raises:
            UnknownModuleError: there is no such module.
        """

    def register_metrics(self, module_id: ModuleID, metrics: Mapping[str, Any]) -> None:
        """Report several values of one module.

        Args:
            module_id: the module, or `ALL_MODULES`.
            metrics: `{name: value}`.

        Raises:
            UnknownModuleError: there is no such module.
        """

    def supports(self, capability: Capability | str) -> bool:
        """Whether the backend has a capability, on this device and with this config."""

    def stream(self, *names: str) -> np.random.Generator:
        """This learner's random generator with these names; part of its state."""

    # --- acting ---------------------------------------------------------------------------------------------

    def compute_actions(
        self,
        obs: Array,
        *,
        module_id: ModuleID = DEFAULT_MODULE_ID,
        explore: bool = True,
        state: Mapping[str, Array] | None = None,
        rng: np.random.Generator | None = None,
        action_mask: Array | None = None,
        values: bool = True,
        as_tensors: bool = False,
    ) -> dict[str, Any]:
        """Act on observations [B, ...]; see `plugrad.Learner.compute_actions`."""

    def compute_values(
        self,
        obs: Array,
        *,
        module_id: ModuleID = DEFAULT_MODULE_ID,
        state: Mapping[str, Array] | None = None,
        as_tensors: bool = False,
    ) -> Any:
        """Compute state values.

        Args:
            obs: observations [B, ...]; for a stateful module sequences [B, T, ...].
            module_id: the module.
            state: the recurrent state before the sequences, `{name: [B, ...]}`; None: that at the start of an episode.
            as_tensors: `obs` is a tensor, and so are the values.

        Returns:
            float32 [B] or [B, T].
        """

    def compute_values_of_episodes(
        self, episodes: Sequence[Any], *, module_id: ModuleID = DEFAULT_MODULE_ID
    ) -> Array:
        """Compute the state values of all observations of episodes.

        Args:
            episodes: E episodes with B steps in all.
            module_id: the module.

        Returns:
            float32 [B + E]: the values of each episode's observations, including the last one.
        """

    def run_connectors(self, episodes: Sequence[Any]) -> Batch:
        """Make `{module_id: {column: array [B, ...]}}` from episodes, without an update."""

    # --- state ----------------------------------------------------------------------------------------------

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
    ) -> dict[str, Any]:
        """The whole state, or some parts of it; see `plugrad.Learner.get_state`."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Load what is in `state` exactly, or raise and change nothing."""

    def get_weights(self) -> dict[ModuleID, dict[str, Array]]:
        """`{module_id: {name: numpy copy}}` of parameters and buffers."""

    def set_weights(self, weights: Mapping[ModuleID, Mapping[str, Array]]) -> None:
        """Load weights from `get_weights`."""
