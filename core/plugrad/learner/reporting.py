"""The Learner's methods that say what an update was like. How metrics are collected says `plugrad.learner.metrics`."""

from collections.abc import Mapping
from typing import Any

from plugrad.learner.metrics import Metrics
from plugrad.results import check_result
from plugrad.rl_module import MultiRLModule
from plugrad.types import ALL_MODULES, ModuleBatches, ModuleID


class ReportingMethods:
    """Metrics and results of a Learner."""

    module: MultiRLModule
    metrics: Metrics

    def register_metric(self, module_id: ModuleID, key: str, value: Any) -> None:
        """Report a value: inside a loss a scalar tensor, elsewhere a number or an array.

        Raises:
            UnknownModuleError: `module_id` is neither a module of this learner nor `ALL_MODULES`.
        """
        if module_id != ALL_MODULES:
            _ = self.module[module_id]
        self.metrics.register(module_id, key, value)

    def register_metrics(self, module_id: ModuleID, metrics: Mapping[str, Any]) -> None:
        """Report several values."""
        for key, value in metrics.items():
            self.register_metric(module_id, key, value)

    def compile_results(
        self,
        *,
        batch: ModuleBatches,
        fwd_out: ModuleBatches,
        loss_per_module: Mapping[ModuleID, float],
        metrics_per_module: Mapping[ModuleID, Mapping[str, Any]],
    ) -> dict[ModuleID, dict[str, Any]]:
        """What `update` returns. Called once at its end; override to add, rename or leave out.

        Args:
            batch: `{module_id: {column: array}}`, all rows of the modules that were trained.
            fwd_out: always empty: what the forward passes gave belongs to the minibatches and is gone with them.
                Report what you need of it with `register_metric` in the loss.
            loss_per_module: `{module_id: mean loss over the minibatches}`.
            metrics_per_module: all that was registered, `{module_id or ALL_MODULES: {name: float or array}}`.
        """
        return {module_id: dict(metrics) for module_id, metrics in metrics_per_module.items()}

    def _check_result(self, result: Any) -> None:
        """Refuse what `update` may not return.

        Raises:
            ResultError: it is no dict, has no `ALL_MODULES`, or a key that is no module id.
        """
        check_result(result, self.module)
