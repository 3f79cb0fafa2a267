"""Hooks of a backend: parameters by name, gradients and optimizers."""

from collections.abc import Callable, Sequence
from typing import Any

from plugrad.gradients import Clip, FlatVariable, Gradients
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookspec, learner_method
from plugrad.optimizers import Optimizer
from plugrad.types import ModuleID, ParamRef, Tensor


class GradientSpec:
    """Hook specifications of a backend's gradients and optimizers; the others are in `BackendSpec`."""

    @learner_method()
    @hookspec(firstresult=True)
    def get_param_ref(self, learner: LearnerProtocol, param: Any) -> ParamRef:
        """Name a parameter of this learner, as gradients and states do.

        Args:
            learner: the learner.
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
        raise NotImplementedError

    @learner_method("_flatten_parameters")
    @hookspec(firstresult=True)
    def flatten_parameters(self, learner: LearnerProtocol, params: Sequence[Any]) -> FlatVariable:
        """Put one flat float32 variable behind some parameters, which stay the module's ordinary parameters.

        Asked once for each registered optimizer.

        Args:
            learner: the learner.
            params: of `get_parameters`.

        Returns:
            A vector with the parameters' values in the order of `params`.

        Example:
            @hookimpl
            def flatten_parameters(learner, params):
                return MyFlatVariable([learner.get_param_ref(p) for p in params], params)
        """
        raise NotImplementedError

    @learner_method("_differentiate")
    @hookspec(firstresult=True)
    def differentiate(
        self,
        learner: LearnerProtocol,
        variables: Sequence[FlatVariable],
        loss_fn: Callable[[], tuple[dict[ModuleID, Tensor], Any]],
    ) -> tuple[dict[ModuleID, Tensor], Any, Gradients]:
        """Call `loss_fn` under the framework's autograd, then `learner.compute_gradients`. Traced.

        Args:
            learner: the learner.
            variables: the flat parameters to differentiate by, one for each optimizer that steps now.
            loss_fn: `() -> (losses, aux)`; while it runs, modules must compute with what the backend differentiates by.

        Returns:
            `(losses, aux, gradients)` with what `compute_gradients` returned.

        Example:
            @hookimpl
            def differentiate(learner, variables, loss_fn):
                with mine.Tape() as tape:
                    losses, aux = loss_fn()
                return losses, aux, learner.compute_gradients(losses, tape=tape)
        """
        raise NotImplementedError

    @learner_method()
    @hookspec(firstresult=True)
    def compute_gradients(
        self, learner: LearnerProtocol, loss_per_module: dict[ModuleID, Tensor], kwargs: dict[str, Any]
    ) -> Gradients:
        """Differentiate the sum of the losses by every registered parameter. Traced.

        On torch and tf2 an override may give `super()` what it made of the losses, such as `2 * loss`; a backend that
        knows gradients of the losses themselves only raises an error then.

        Args:
            learner: the learner.
            loss_per_module: `{module_id: scalar}`.
            kwargs: what `differentiate` passes along to the method, or a user, such as tf2's `gradient_tape`.

        Returns:
            `{parameter ref: gradient}`, shapes as of the parameters.

        Example:
            @hookimpl
            def compute_gradients(learner, loss_per_module, kwargs):
                return kwargs["tape"].gradient(sum(loss_per_module.values()))
        """
        raise NotImplementedError

    @learner_method("_reduce_gradients")
    @hookspec(firstresult=True)
    def reduce_gradients(self, learner: LearnerProtocol, gradients: Gradients) -> Gradients:
        """Add up the gradients of all learners of a group; a learner alone returns them as they are. Traced.

        Every learner has weighted its losses by its part of the rows, so that the sum is the gradient of the whole
        batch. Default: through numpy, for backends that do not trace.

        Args:
            learner: the learner; `learner.collective` is None where it is alone.
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
        raise NotImplementedError

    @learner_method("_get_clip_function")
    @hookspec(firstresult=True)
    def get_clip_function(self, learner: LearnerProtocol) -> Clip:
        """The function that clips one optimizer's gradients. Asked once per step. Traced.

        Default: the core's formula over `learner.ops`; another may be faster.

        Args:
            learner: the learner.

        Returns:
            See `plugrad.gradients.Clip`.

        Example:
            @hookimpl
            def get_clip_function(learner):
                return functools.partial(clip_gradients, learner.ops)
        """
        raise NotImplementedError

    @learner_method("_check_registered_optimizer")
    @hookspec(firstresult=True)
    def check_registered_optimizer(
        self, learner: LearnerProtocol, optimizer: Any, params: Sequence[Any]
    ) -> None:
        """Refuse what cannot be stepped. Asked for each optimizer before it is registered.

        Args:
            learner: the learner.
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
        raise NotImplementedError

    @learner_method("_wrap_optimizer")
    @hookspec(firstresult=True)
    def wrap_optimizer(self, learner: LearnerProtocol, optimizer: Any) -> Optimizer:
        """Give an optimizer of the framework the methods of `plugrad.optimizers.Optimizer`.

        For backends with `Capability.FRAMEWORK_OPTIMIZERS`. Asked once per registered optimizer, after
        `check_registered_optimizer`. Default: what it is given. `learner.get_optimizer()` stays the user's own object.

        Args:
            learner: the learner.
            optimizer: of `plugrad.optimizers` or of the framework.

        Returns:
            An object with `bind`, `step`, `parameters`, `variables` (what an undo puts back) and `get_slots`,
            `slots_like`, `set_slots` (what a state has of it).

        Example:
            @hookimpl
            def wrap_optimizer(optimizer):
                return MyNativeOptimizer(optimizer) if isinstance(optimizer, mine.Optimizer) else optimizer
        """
        raise NotImplementedError

    @learner_method("_get_optimizer_lr")
    @hookspec(firstresult=True)
    def get_optimizer_lr(self, learner: LearnerProtocol, optimizer: Any) -> float:
        """Read the learning rate of an optimizer.

        Args:
            learner: the learner.
            optimizer: a registered one.

        Returns:
            The rate, as a float.

        Example:
            @hookimpl
            def get_optimizer_lr(optimizer):
                return float(optimizer.lr.numpy())
        """
        raise NotImplementedError

    @learner_method("_set_optimizer_lr")
    @hookspec(firstresult=True)
    def set_optimizer_lr(self, learner: LearnerProtocol, optimizer: Any, lr: float) -> None:
        """Set the learning rate of an optimizer. Schedules do so after each update.

        It must not cause a new trace, so the rate is a variable.

        Args:
            learner: the learner.
            optimizer: a registered one.
            lr: the rate.

        Example:
            @hookimpl
            def set_optimizer_lr(optimizer, lr):
                optimizer.lr.assign(lr)
        """
        raise NotImplementedError
