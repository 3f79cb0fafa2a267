"""Two learners that show what plugrad costs around a step: one replays its loop, one steps without hooks and checks."""

from collections.abc import Mapping, Sequence
from typing import Any

from plugrad import ALL_MODULES, DEFAULT_MODULE_ID
from plugrad.gradients import clip_gradients, flat_of
from plugrad.learner.update.step import NONFINITE_KEY
from plugrad_ppo import PPOLearner
from plugrad_ppo.loss import ppo_loss


class RecordingLearner(PPOLearner):
    """Keeps the arguments of its last program, to run it again alone."""

    def _compile_update(self, step: Any, variables: Sequence[Any], mode: str) -> Any:
        self._recording = _Recording(super()._compile_update(step, variables, mode))
        return self._recording

    def replay(self) -> None:
        """Run the loop of the last update again, alone. Metrics are copied to the host as always."""
        self._convert_to_numpy(self._recording.program.run(*self._recording.arguments))


class _Recording:
    """A program that keeps its arguments."""

    def __init__(self, program: Any) -> None:
        self.program = program
        self.arguments: tuple[Any, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)

    def run(self, *arguments: Any) -> Any:
        self.arguments = arguments
        return self.program.run(*arguments)


class BareLearner(PPOLearner):
    """One module's step without hooks (except the backend's gradients), metrics and finite check."""

    def _update(self, batch: Mapping[str, Mapping[str, Any]]) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """Forward, loss, gradients, clip, optimizer."""
        ops = self.ops
        ((registered),) = self.registered_optimizers.values()
        optimizer = registered.optimizer
        config = self.config_view(DEFAULT_MODULE_ID)
        rows = batch[DEFAULT_MODULE_ID]

        def loss_fn() -> tuple[dict[str, Any], Any]:
            fwd_out = self.module[DEFAULT_MODULE_ID].forward_train(rows)
            return {DEFAULT_MODULE_ID: ppo_loss(self, DEFAULT_MODULE_ID, config, rows, fwd_out)}, fwd_out

        losses, fwd_out, gradients = self._differentiate([optimizer.parameters], loss_fn)
        clipped, norm = clip_gradients(
            ops, gradients, grad_clip=config.grad_clip, grad_clip_by=config.grad_clip_by
        )
        optimizer.step(ops, flat_of(ops, clipped, registered.layout), lambda new, old: new)
        # The one metric that update() itself needs.
        self.register_metric(ALL_MODULES, NONFINITE_KEY, ops.zeros_like(norm))
        return fwd_out, losses, {}

    def register_metrics(self, module_id: str, metrics: Mapping[str, Any]) -> None:
        """Drop the metrics of the loss."""
