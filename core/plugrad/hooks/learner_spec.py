"""Learner methods that are hooks with a default in the core. A subclass overrides the method; a plugin wraps the hook.

@hookimpl(wrapper=True)
def compute_losses(learner, fwd_out, batch):
    losses = yield
    return {module_id: loss * 2.0 for module_id, loss in losses.items()}
"""

from collections.abc import Mapping, Sequence
from typing import Any

from plugrad.gradients import Gradients
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookspec
from plugrad.types import ModuleBatches, ModuleID, ParamRef, Tensor


class LearnerSpec:
    """Hook specifications of the Learner itself."""

    @hookspec(firstresult=True)
    def update(
        self, learner: LearnerProtocol, batch: ModuleBatches
    ) -> tuple[Any, dict[ModuleID, Tensor], dict[str, Tensor]]:
        """`Learner._update`: one gradient step on one minibatch: forward, losses, gradients, apply. Traced.

        Returns `(fwd_out, loss_per_module, metrics)`.

            @hookimpl(wrapper=True)
            def update(learner, batch):
                return (yield)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def compute_losses(
        self, learner: LearnerProtocol, fwd_out: ModuleBatches, batch: ModuleBatches
    ) -> dict[ModuleID, Tensor]:
        """`{module_id: scalar}` from `compute_loss_for_module`, module by module; override for joint losses. Traced.

        @hookimpl(wrapper=True)
        def compute_losses(learner, fwd_out, batch):
            losses = yield
            return {m: loss + 0.01 * penalty(learner, fwd_out[m]) for m, loss in losses.items()}
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def postprocess_gradients(self, learner: LearnerProtocol, gradients_dict: Gradients) -> Gradients:
        """All gradients, before they are applied: `postprocess_gradients_for_module` for each module. Traced.

        Names that no optimizer steps are an `UnknownParameterError`; what is left out counts as zero, and an
        optimizer of which all is left out does not step.

        @hookimpl(wrapper=True)
        def postprocess_gradients(learner, gradients_dict):
            gradients = yield
            return {ref: learner.ops.clip(g, -1.0, 1.0) for ref, g in gradients.items()}
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def apply_gradients(self, learner: LearnerProtocol, gradients_dict: Gradients) -> None:
        """Step every optimizer whose parameters have gradients here. A backend may answer with a fused step. Traced.

        @hookimpl(wrapper=True)
        def apply_gradients(learner, gradients_dict):
            return (yield)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def should_module_be_updated(
        self, learner: LearnerProtocol, module_id: ModuleID, multi_agent_batch: Any
    ) -> bool:
        """Whether a module is trained in this update. Default: `config.policies_to_train`. Once per update and module.

        @hookimpl(wrapper=True)
        def should_module_be_updated(learner, module_id):
            return (yield) and module_id not in FROZEN
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def configure_optimizers(self, learner: LearnerProtocol) -> None:
        """`configure_optimizers_for_module` for every module that the backend can train. Called once, at build.

        @hookimpl(wrapper=True)
        def configure_optimizers(learner):
            return (yield)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def register_optimizer(
        self,
        learner: LearnerProtocol,
        module_id: ModuleID,
        optimizer_name: str,
        optimizer: Any,
        params: Sequence[Any],
        lr_or_lr_schedule: Any,
    ) -> None:
        """Give an optimizer its parameters, name and learning rate.

        @hookimpl(wrapper=True)
        def register_optimizer(learner, module_id, optimizer_name):
            print(module_id, optimizer_name)
            return (yield)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_optimizer(self, learner: LearnerProtocol, module_id: ModuleID, optimizer_name: str) -> Any:
        """The optimizer registered under this name.

        @hookimpl(wrapper=True)
        def get_optimizer(learner, module_id, optimizer_name):
            return (yield)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_optimizers_for_module(
        self, learner: LearnerProtocol, module_id: ModuleID
    ) -> list[tuple[str, Any]]:
        """`[(short name, optimizer)]` registered for a module; all of them for `ALL_MODULES`.

        @hookimpl(wrapper=True)
        def get_optimizers_for_module(learner, module_id):
            return (yield)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def filter_param_dict_for_optimizer(
        self, learner: LearnerProtocol, param_dict: Mapping[ParamRef, Tensor], optimizer: Any
    ) -> Mapping[ParamRef, Tensor]:
        """The entries of `param_dict` that belong to one optimizer. Traced.

        @hookimpl(wrapper=True)
        def filter_param_dict_for_optimizer(learner, param_dict, optimizer):
            return (yield)
        """
        raise NotImplementedError
