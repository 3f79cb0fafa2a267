"""Hooks that are Learner methods with a default in the core. A subclass overrides the method; a plugin wraps the hook.

@hookimpl(wrapper=True)
def compute_losses(learner, fwd_out, batch):
    losses = yield
    return {module_id: loss * 2.0 for module_id, loss in losses.items()}
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from plugrad.gradients import Gradients
from plugrad.hooks.hook_caller import HookCaller
from plugrad.hooks.markers import learner_method
from plugrad.types import (
    ALL_MODULES,
    DEFAULT_MODULE_ID,
    DEFAULT_OPTIMIZER,
    ModuleBatches,
    ModuleID,
    ParamRef,
    Tensor,
)


class LearnerSpec(HookCaller, Protocol):
    """Methods of the Learner that the core answers if no plugin does."""

    @learner_method
    def _update(self, batch: ModuleBatches) -> tuple[Any, dict[ModuleID, Tensor], dict[str, Tensor]]:
        """Take one gradient step on one minibatch: forward, losses, gradients, apply. Traced.

        The method is `Learner._update`, not the public `update()`.

        Args:
            batch: `{module_id: {column: tensor [B, ...]}}`.

        Returns:
            `(fwd_out, loss_per_module, metrics)`.

        Example:
            @hookimpl(wrapper=True)
            def update(learner, batch):
                return (yield)
        """
        return self._provide("update", batch=batch)

    @learner_method
    def compute_losses(self, *, fwd_out: ModuleBatches, batch: ModuleBatches) -> dict[ModuleID, Tensor]:
        """Compute the losses of all modules on one minibatch. Default: `compute_loss_for_module` of each. Traced.

        Use it to add a term to the loss of any algorithm, and for joint losses of several modules.

        Args:
            fwd_out: what each module's `forward_train` returned, `{module_id: {column: tensor [B, ...]}}`.
            batch: `{module_id: {column: tensor [B, ...]}}`.

        Returns:
            `{module_id: scalar tensor}`.

        Example:
            @hookimpl(wrapper=True)
            def compute_losses(learner, fwd_out, batch):
                losses = yield
                return {m: loss + 0.01 * penalty(learner, fwd_out[m]) for m, loss in losses.items()}
        """
        return self._provide("compute_losses", fwd_out=fwd_out, batch=batch)

    @learner_method
    def postprocess_gradients(self, gradients_dict: Gradients) -> Gradients:
        """Change all gradients before they are applied. Traced.

        Default: `postprocess_gradients_for_module` for each module.

        Args:
            gradients_dict: `{parameter ref: gradient}`.

        Returns:
            The gradients to apply. Missing ones count as zero; an optimizer whose gradients are all missing does not
            step; a name that no optimizer steps is an `UnknownParameterError`.

        Example:
            @hookimpl(wrapper=True)
            def postprocess_gradients(learner, gradients_dict):
                gradients = yield
                return {ref: learner.ops.clip(g, -1.0, 1.0) for ref, g in gradients.items()}
        """
        return self._provide("postprocess_gradients", gradients_dict=gradients_dict)

    @learner_method
    def apply_gradients(self, gradients_dict: Gradients) -> None:
        """Step the optimizers that have gradients. A backend may answer with a fused step. Traced.

        Assignments in a wrapper, such as `learner.targets[module_id].update(tau=0.005)`, run in every gradient step,
        also in compiled programs.

        Args:
            gradients_dict: `{parameter ref: gradient}`. A missing or None gradient counts as zero if other parameters
                of its optimizer have gradients; an optimizer without any gradient is not stepped.

        Raises:
            UnknownParameterError: a key is not the name of a parameter that an optimizer steps.

        Example:
            @hookimpl(wrapper=True)
            def apply_gradients(learner, gradients_dict):
                return (yield)
        """
        self._provide("apply_gradients", gradients_dict=gradients_dict)

    @learner_method
    def should_module_be_updated(self, module_id: ModuleID, multi_agent_batch: Any = None) -> bool:
        """Whether a module is trained in this update. Called once per update and module.

        Default: what `config.policies_to_train` says.

        Args:
            module_id: the module's id.
            multi_agent_batch: the batch that `update` was given; None if it was given episodes.

        Returns:
            True if it is trained.

        Example:
            @hookimpl(wrapper=True)
            def should_module_be_updated(learner, module_id):
                return (yield) and module_id not in FROZEN
        """
        return self._provide(
            "should_module_be_updated", module_id=module_id, multi_agent_batch=multi_agent_batch
        )

    @learner_method
    def configure_optimizers(self) -> None:
        """Register the optimizers of all modules. Called once, at build.

        Default: `configure_optimizers_for_module` for every module that the backend can train.

        Example:
            @hookimpl(wrapper=True)
            def configure_optimizers(learner):
                return (yield)
        """
        self._provide("configure_optimizers")

    @learner_method
    def register_optimizer(
        self,
        *,
        module_id: ModuleID = ALL_MODULES,
        optimizer_name: str = DEFAULT_OPTIMIZER,
        optimizer: Any,
        params: Sequence[Any],
        lr_or_lr_schedule: Any = None,
        every: int = 1,
    ) -> None:
        """Let an optimizer step some parameters.

        Args:
            module_id: the module's id; `ALL_MODULES` for an optimizer that modules share.
            optimizer_name: unique within the module.
            optimizer: an optimizer of `plugrad.optimizers`, or the framework's own if the backend declares
                `Capability.FRAMEWORK_OPTIMIZERS`: a `torch.optim.Optimizer` over exactly `params`, a Keras optimizer
                not yet built, `optax.inject_hyperparams(optax.adam)(learning_rate=0.001)` or another optax optimizer
                whose rate can be set.
            params: a list of the framework's parameters, from `get_parameters`.
            lr_or_lr_schedule: a float, `[[timestep, value], ...]`, or None if you set it yourself.
            every: step only in every n-th gradient step (a delayed policy); gradients of the other steps are not used.
                A step that `nonfinite="skip"` skips is not counted.

        Raises:
            OptimizerError: the name is taken, `params` is not a list of parameters, one of them already has an
                optimizer, or `every` is not a whole number above 0.

        Example:
            @hookimpl(wrapper=True)
            def register_optimizer(learner, module_id, optimizer_name):
                print(module_id, optimizer_name)
                return (yield)
        """
        self._provide(
            "register_optimizer",
            module_id=module_id,
            optimizer_name=optimizer_name,
            optimizer=optimizer,
            params=params,
            lr_or_lr_schedule=lr_or_lr_schedule,
            every=every,
        )

    @learner_method
    def get_optimizer(
        self, module_id: ModuleID = DEFAULT_MODULE_ID, optimizer_name: str = DEFAULT_OPTIMIZER
    ) -> Any:
        """Find a registered optimizer by name.

        Args:
            module_id: the module's id.
            optimizer_name: the name within the module, or the full name `<module id>_<optimizer name>`.

        Returns:
            The object that was registered.

        Raises:
            OptimizerError: there is no such optimizer; the error is also a KeyError.

        Example:
            @hookimpl(wrapper=True)
            def get_optimizer(learner, module_id, optimizer_name):
                return (yield)
        """
        return self._provide("get_optimizer", module_id=module_id, optimizer_name=optimizer_name)

    @learner_method
    def get_optimizers_for_module(self, module_id: ModuleID = ALL_MODULES) -> list[tuple[str, Any]]:
        """List the optimizers of a module.

        Args:
            module_id: the module's id; `ALL_MODULES`: every optimizer.

        Returns:
            `[(name within the module, optimizer)]`.

        Example:
            @hookimpl(wrapper=True)
            def get_optimizers_for_module(learner, module_id):
                return (yield)
        """
        return self._provide("get_optimizers_for_module", module_id=module_id)

    @learner_method
    def filter_param_dict_for_optimizer(
        self, param_dict: Mapping[ParamRef, Tensor], optimizer: Any
    ) -> Mapping[ParamRef, Tensor]:
        """Pick the entries that belong to one optimizer. Traced.

        Args:
            param_dict: `{parameter ref: gradient}`.
            optimizer: a registered optimizer.

        Returns:
            The entries of its parameters.

        Example:
            @hookimpl(wrapper=True)
            def filter_param_dict_for_optimizer(learner, param_dict, optimizer):
                return (yield)
        """
        return self._provide("filter_param_dict_for_optimizer", param_dict=param_dict, optimizer=optimizer)
