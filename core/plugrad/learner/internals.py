"""The Learner as its own parts see it: what hooks may use, what only the parts change, and the inner hooks."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from plugrad.collective import Collective
from plugrad.hooks.backend_types import BackendInfo, StepContext
from plugrad.hooks.learner_protocol import LearnerProtocol, RegisteredOptimizer
from plugrad.hooks.manager import HookManager, Plugin
from plugrad.learner.update.target_networks import TargetNetwork
from plugrad.metrics import Metrics
from plugrad.ops import Ops, Variable
from plugrad.rl_module import MultiRLModule
from plugrad.schedules import Coefficients
from plugrad.types import Array, ModuleBatches, ModuleID, Tensor


class LossCheck(Protocol):
    """Checks how losses are computed: `plugrad.learner.update.broadcast_check.ShapeCheck`."""

    is_done: bool

    def check(self, compute: Callable[[Any, ModuleBatches], Any], batch: ModuleBatches) -> Any:
        """See `ShapeCheck.check`."""


class LearnerInternals(LearnerProtocol, Protocol):
    """A Learner to the parts of `plugrad.learner`, which read and change these."""

    plugins: list[Plugin]
    _hooks: HookManager
    backend_info: BackendInfo
    module: MultiRLModule
    collective: Collective | None
    program_batch: Any
    """The `plugrad.learner.update.batched_programs.ProgramBatch` that it is part of, or None."""
    ops: Ops
    metrics: Metrics
    registered_optimizers: dict[str, RegisteredOptimizer]
    targets: dict[ModuleID, TargetNetwork]
    buffers: dict[ModuleID, dict[str, Variable]]
    _initial_plugin_state: dict[str, Array]
    """The first values of what plugins registered, by name."""
    _restored_plugin_state: dict[str, Array]
    """What was restored for plugins that have not registered it yet, by name."""
    _made_variables: list[tuple[Callable[[], Any], Any]]
    """What `get_tensor_variable` made since the plugins' own were last looked for: weak references, first values."""
    num_parameters: dict[ModuleID, int]
    """The number of trained parameters of each module when it was built."""
    frozen_parameters: dict[ModuleID, frozenset[str]]
    """Names of the parameters that no optimizer has to step."""
    noise_columns: dict[ModuleID, Mapping[str, tuple[int, ...]]]
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
    is_guarded: bool
    """Whether the present step must change nothing if it is not finite."""
    _failure: str
    """The error of an update that failed and was not undone (`undo=False`); empty: none."""
    _undo_copy: Any
    """The `plugrad.learner.state.state.Snapshot` that undoes the update that runs; None between updates."""
    names_parameters: bool
    """Whether steps are taken again to find the parameters whose gradients are not finite."""
    update_mode: str
    shape_check: LossCheck
    _step_context: StepContext
    """How the backend runs the parts of the present step."""

    def notify(self, hook: str, **arguments: Any) -> None:
        """See `Learner.notify`."""

    def forget_programs(self) -> None:
        """See `Learner.forget_programs`."""

    def compile_results(
        self,
        *,
        batch: ModuleBatches,
        fwd_out: ModuleBatches,
        loss_per_module: Mapping[ModuleID, float],
        metrics_per_module: Mapping[ModuleID, Mapping[str, Any]],
    ) -> dict[ModuleID, dict[str, Any]]:
        """See `Learner.compile_results`."""

    def _check_is_built(self, error: bool = True) -> bool: ...

    def _keep_for_undo(self) -> None: ...

    def _check_result(self, result: Any) -> None: ...

    def _get_optimizer_state(self) -> dict[str, Any]: ...

    def _set_optimizer_state(self, state: Mapping[str, Any]) -> None: ...
