"""Hooks of a backend: parameters by name, gradients and optimizers."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from plugrad.gradients import Clip, FlatVariable, Gradients
from plugrad.hooks.hook_caller import HookCaller
from plugrad.hooks.markers import learner_method
from plugrad.optimizers import Optimizer
from plugrad.types import ModuleID, ParamRef, Tensor


class GradientSpec(HookCaller, Protocol):
    """Methods of the Learner that ask the backend for gradients and optimizers; the others are in `BackendSpec`."""

    @learner_method
    def get_param_ref(self, param: Any) -> ParamRef:
        """Name a parameter of this learner, as gradients and states do.

        Args:
            param: one of `get_parameters`.

        Returns:
            `<module id>/<parameter name>`.

        Raises:
            OptimizerError: it belongs to no module of this learner.

        Example:
            @hookimpl
            def get_param_ref(learner, param):
                return names_of(learner)[id(param)]
        """
        return self._provide("get_param_ref", param=param)

    @learner_method
    def _flatten_parameters(self, params: Sequence[Any]) -> FlatVariable:
        """Put one flat float32 variable behind some parameters, which stay the module's ordinary parameters.

        Asked once for each registered optimizer.

        Args:
            params: of `get_parameters`.

        Returns:
            A vector with the parameters' values in the order of `params`.

        Example:
            @hookimpl
            def flatten_parameters(learner, params):
                return MyFlatVariable([learner.get_param_ref(p) for p in params], params)
        """
        return self._provide("flatten_parameters", params=params)

    @learner_method
    def _differentiate(
        self, variables: Sequence[FlatVariable], loss_fn: Callable[[], tuple[dict[ModuleID, Tensor], Any]]
    ) -> tuple[dict[ModuleID, Tensor], Any, Gradients]:
        """Call `loss_fn` under the framework's autograd, then `learner.compute_gradients`. Traced.

        A functional backend makes a pure function of `loss_fn`. Beside its result it leaves metrics behind, which
        `learner.metrics.step()` gives, and new values in `learner.buffers`: both have to leave that function, too.

        Args:
            variables: the flat parameters to differentiate by, one for each optimizer that steps now.
            loss_fn: `() -> (losses, aux)`; while it runs, modules must compute with what the backend differentiates by.
                `losses` is `{module_id: scalar}`. `aux` is a nested dict, list or tuple of tensors and of None, numbers
                and strings. It may be called more than once.

        Returns:
            `(losses, aux, gradients)` with what `compute_gradients` returned. The tensors are those of the caller:
            outside of `loss_fn` they have values, or are of the program that is traced.

        Example:
            @hookimpl
            def differentiate(learner, variables, loss_fn):
                with mine.Tape() as tape:
                    losses, aux = loss_fn()
                return losses, aux, learner.compute_gradients(losses, tape=tape)
        """
        return self._provide("differentiate", variables=variables, loss_fn=loss_fn)

    @learner_method
    def compute_gradients(self, loss_per_module: dict[ModuleID, Tensor], **kwargs: Any) -> Gradients:
        """Differentiate the sum of the losses by every registered parameter. Traced.

        Where the backend declares `Capability.CHANGED_LOSSES`, an override may give `super()` what it made of the
        losses, such as `2 * loss`. A functional backend knows gradients of the losses themselves only, and raises an
        error that says so. Losses that are changed in `compute_losses` are portable.

        Args:
            loss_per_module: `{module_id: scalar}`.
            **kwargs: what `differentiate` passes along to the method, or a user, such as tf2's `gradient_tape`.

        Returns:
            `{parameter ref: gradient}`, shapes as of the parameters.

        Raises:
            LossError: the backend has no gradients of these losses.

        Example:
            @hookimpl
            def compute_gradients(learner, loss_per_module, kwargs):
                return kwargs["tape"].gradient(sum(loss_per_module.values()))
        """
        return self._provide("compute_gradients", loss_per_module=loss_per_module, kwargs=kwargs)

    @learner_method
    def _reduce_gradients(self, gradients: Gradients) -> Gradients:
        """Add up the gradients of all learners of a group; a learner alone returns them as they are. Traced.

        Every learner has weighted its losses by its part of the rows, so that the sum is the gradient of the whole
        batch. Default: through numpy, for backends that do not trace.

        Args:
            gradients: its own, `{parameter ref: gradient}`.

        Returns:
            The sums, `{parameter ref: gradient}`.

        Example:
            @hookimpl
            def reduce_gradients(learner, gradients):
                if learner.collective is None:
                    return gradients
                return plugrad.gradients.exchanged(mine.ops, gradients, learner.collective.all_reduce)
        """
        return self._provide("reduce_gradients", gradients=gradients)

    @learner_method
    def _get_clip_function(self) -> Clip:
        """The function that clips one optimizer's gradients. Asked once per step. Traced.

        Default: the core's formula over `learner.ops`; another may be faster.

        Returns:
            See `plugrad.gradients.Clip`.

        Example:
            @hookimpl
            def get_clip_function(learner):
                return functools.partial(clip_gradients, learner.ops)
        """
        return self._provide("get_clip_function")

    @learner_method
    def _check_registered_optimizer(self, optimizer: Any, params: Sequence[Any]) -> None:
        """Refuse what cannot be stepped. Asked for each optimizer before it is registered.

        Args:
            optimizer: what the user registers.
            params: that it is to step.

        Raises:
            OptimizerError: it is no optimizer that this backend knows, or these are no parameters.

        Example:
            @hookimpl
            def check_registered_optimizer(optimizer, params):
                if not isinstance(optimizer, (plugrad.optimizers.Optimizer, mine.Optimizer)):
                    raise OptimizerError(...)
        """
        self._provide("check_registered_optimizer", optimizer=optimizer, params=params)

    @learner_method
    def _wrap_optimizer(self, optimizer: Any) -> Optimizer:
        """Give an optimizer of the framework the methods of `plugrad.optimizers.Optimizer`.

        For backends with `Capability.FRAMEWORK_OPTIMIZERS`. Asked once per registered optimizer, after
        `check_registered_optimizer`. Default: what it is given. `learner.get_optimizer()` stays the user's own object.

        Args:
            optimizer: of `plugrad.optimizers` or of the framework.

        Returns:
            An object with `bind`, `step`, `parameters`, `variables` (what an undo puts back) and `get_slots`,
            `slots_like`, `set_slots` (what a state has of it).

        Example:
            @hookimpl
            def wrap_optimizer(optimizer):
                return MyNativeOptimizer(optimizer) if isinstance(optimizer, mine.Optimizer) else optimizer
        """
        return self._provide("wrap_optimizer", optimizer=optimizer)

    @learner_method
    def _get_optimizer_lr(self, optimizer: Any) -> float:
        """Read the learning rate of an optimizer.

        Args:
            optimizer: a registered one.

        Returns:
            The rate, as a float.

        Example:
            @hookimpl
            def get_optimizer_lr(optimizer):
                return float(optimizer.lr.numpy())
        """
        return float(self._provide("get_optimizer_lr", optimizer=optimizer))

    @learner_method
    def _set_optimizer_lr(self, optimizer: Any, lr: float) -> None:
        """Set the learning rate of an optimizer. Schedules do so after each update.

        It must not cause a new trace, so the rate is a variable.

        Args:
            optimizer: a registered one.
            lr: the rate.

        Example:
            @hookimpl
            def set_optimizer_lr(optimizer, lr):
                optimizer.lr.assign(lr)
        """
        self._provide("set_optimizer_lr", optimizer=optimizer, lr=lr)
