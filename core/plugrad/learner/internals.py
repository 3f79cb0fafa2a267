"""The Learner as its own parts see it: what hooks may use, what only the parts change, and the inner hooks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from plugrad.config import Config
from plugrad.gradients import Clip, FlatVariable, Gradients
from plugrad.hooks.backend_spec import Program
from plugrad.hooks.learner_protocol import LearnerProtocol, RegisteredOptimizer
from plugrad.hooks.manager import Plugin
from plugrad.learner.metrics import Metrics
from plugrad.learner.target_networks import TargetNetwork
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.ops import Ops, Variable
from plugrad.optimizers import Optimizer
from plugrad.rl_module import MultiRLModule, RLModule
from plugrad.schedules import Coefficients
from plugrad.types import Array, ModuleBatches, ModuleID, Tensor


class LossCheck(Protocol):
    """Looks at how losses are computed; `plugrad.learner.shape_check.ShapeCheck` is the one that there is."""

    def run(self, compute: Callable[[ModuleBatches], Any], batch: ModuleBatches) -> Any:
        """`compute(batch)`."""


class LearnerInternals(LearnerProtocol, Protocol):
    """A Learner to the parts of `plugrad.learner`, which read and change these."""

    config: Config
    plugins: list[Plugin]
    module: MultiRLModule
    ops: Ops
    metrics: Metrics
    registered_optimizers: dict[str, RegisteredOptimizer]
    targets: dict[ModuleID, TargetNetwork]
    buffers: dict[ModuleID, dict[str, Variable]]
    coefficients: dict[ModuleID, Coefficients]
    counters: dict[str, int]
    streams: dict[str, np.random.Generator]
    seed: int
    weights: Mapping[ModuleID, Tensor] | None
    part_weights: Mapping[ModuleID, Tensor] | None
    """The weights of the parts of the present minibatch, if `accumulate` makes several and they count differently."""
    weights_version: int
    finite: Tensor | None
    """Whether losses and gradients of the present step are finite; None outside a step."""
    names_parameters: bool
    """Whether steps are taken again to find the parameters whose gradients are not finite."""
    update_mode: str
    shape_check: LossCheck

    def notify(self, hook: str, **arguments: Any) -> None:
        """Call a listener hook."""

    def forget_programs(self) -> None:
        """Make the programs of updates anew: what they were made for has changed."""

    def configure_optimizers(self) -> None:
        """Register the optimizers of all modules."""

    def before_gradient_based_update(self, *, timesteps: Mapping[str, int]) -> None:
        """Once per update, before the first minibatch."""

    def after_gradient_based_update(self, *, timesteps: Mapping[str, int]) -> None:
        """Once per update, after the last minibatch."""

    def compile_results(
        self,
        *,
        batch: ModuleBatches,
        fwd_out: ModuleBatches,
        loss_per_module: Mapping[ModuleID, float],
        metrics_per_module: Mapping[ModuleID, Mapping[str, Any]],
    ) -> dict[ModuleID, dict[str, Any]]:
        """What `update` returns."""

    def _provide(self, hook: str, **arguments: Any) -> Any: ...

    def _check_is_built(self, error: bool = True) -> bool: ...

    def _check_result(self, result: Any) -> None: ...

    def _get_optimizer_state(self) -> dict[str, Any]: ...

    def _set_optimizer_state(self, state: Mapping[str, Any]) -> None: ...

    def _build_network(
        self, *, module_id: ModuleID, config: Config, module_spec: RLModuleSpec
    ) -> Network: ...

    def _build_module(
        self,
        *,
        module_id: ModuleID,
        module_spec: RLModuleSpec,
        network: Network,
        weights: Mapping[str, Array],
    ) -> RLModule: ...

    def _wrap_module(self, *, module_id: ModuleID, module: Any, module_spec: RLModuleSpec) -> RLModule: ...

    def _get_buffers(self, module: RLModule) -> Mapping[str, Variable]: ...

    def _get_exploration_inputs(self, *, module_id: ModuleID, fwd_out: Mapping[str, Array]) -> Array: ...

    def _compile_update(self, step: Any, variables: Sequence[Variable], mode: str) -> Program: ...

    def _wrap_optimizer(self, optimizer: Any) -> Optimizer: ...

    def _flatten_parameters(self, params: Sequence[Any]) -> FlatVariable: ...

    def _is_module_compatible_with_learner(self, module: RLModule) -> bool: ...

    def _check_registered_optimizer(self, optimizer: Any, params: Sequence[Any]) -> None: ...

    def _get_clip_function(self) -> Clip: ...

    def _reduce_gradients(self, gradients: Gradients) -> Gradients: ...
