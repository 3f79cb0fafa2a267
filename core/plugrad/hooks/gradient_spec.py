"""Hooks of a backend: names of parameters, gradients and optimizers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from plugrad.contract import since
from plugrad.gradients import Clip, FlatVariable, Gradients
from plugrad.hooks.hook_caller import HookCaller
from plugrad.hooks.markers import learner_method
from plugrad.optimizers import Optimizer
from plugrad.types import ModuleID, ParamRef, Tensor


class GradientSpec(HookCaller, Protocol):
    """Methods of the Learner that call the backend for gradients and optimizers; the others are in `BackendSpec`."""

    @learner_method
    def get_param_ref(self, param: Any) -> ParamRef:
        """The name of a parameter in gradients and states.

        Args:
            param: a parameter from `get_parameters`.

        Returns:
            `<module id>/<parameter name>`.

        Raises:
            OptimizerError: it does not belong to a module of this learner.

        Example:
            @hookimpl
            def get_param_ref(learner, param):
                return names_of(learner)[id(param)]
        """
        return self._provide("get_param_ref", param=param)

    @learner_method
    def _flatten_parameters(self, params: Sequence[Any]) -> FlatVariable:
        """Make one flat float32 variable that holds some parameters, which remain the module's ordinary parameters.

        Called once for each registered optimizer.

        Args:
            params: parameters from `get_parameters`.

        Returns:
            The variable; its vector has the parameters' values in the order of `params`.

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

        A functional backend makes a pure function of `loss_fn`. That function must also return the metrics, which
        `learner.metrics.step()` yields, and the new values of `learner.buffers`.

        Args:
            variables: the flat parameters to differentiate with respect to, one per optimizer that steps now.
            loss_fn: `() -> (losses, aux)`; while it runs, modules must compute with the tensors that the backend
                differentiates with respect to. `losses` is `{module_id: scalar}`. `aux` is a nested dict, list or tuple
                of tensors, None, numbers and strings. It may be called more than once.

        Returns:
            `(losses, aux, gradients)` with the result of `compute_gradients`. The tensors must be valid for the caller,
            outside of `loss_fn`: with values, or part of the program that is traced.

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
        """Differentiate the sum of the losses with respect to every registered parameter. Traced.

        If the backend declares `Capability.CHANGED_LOSSES`, an override may pass changed losses, such as `2 * loss`, to
        `super()`. A functional backend only has gradients of the original losses, and raises an error that says so.
        Changing losses in `compute_losses` works on every backend.

        Args:
            loss_per_module: `{module_id: scalar}`.
            **kwargs: further arguments that `differentiate` or a user passes, such as tf2's `gradient_tape`.

        Returns:
            `{parameter ref: gradient}`, in the shapes of the parameters.

        Raises:
            LossError: the backend has no gradients of these losses.

        Example:
            @hookimpl
            def compute_gradients(learner, loss_per_module, kwargs):
                return kwargs["tape"].gradient(sum(loss_per_module.values()))
        """
        return self._provide("compute_gradients", loss_per_module=loss_per_module, kwargs=kwargs)

    @learner_method
    @since(2)
    def jvp(
        self, module_id: ModuleID, function: Callable[[], Tensor], vectors: Mapping[str, Any]
    ) -> tuple[Tensor, Tensor]:
        """A scalar of a module, and how fast it changes if the parameters move along a vector. Not within an update.

        Args:
            module_id: the module.
            function: computes the scalar with `learner.module[module_id]`. It may be called more than once.
            vectors: `{parameter name: array in the parameter's shape}`, names as in `get_weights()[module_id]`. Other
                parameters stay.

        Returns:
            `(value, product)`, two scalars: `function()`, and the sum of gradients times vectors.

        Raises:
            ConfigError: the backend does not declare `Capability.SECOND_DERIVATIVES`, or `vectors` has a name that is
                no parameter, or an array of another shape.
            LossError: `function` does not give a scalar, or none that depends on these parameters.

        Example:
            @hookimpl
            def jvp(learner, module_id, function, vectors):
                module = learner.module[module_id]
                weights = {name: each for name, each in module.get_state().items() if name in vectors}

                def at(weights):
                    with module.functional_call(weights):
                        return function()

                return mine.jvp(at, weights, vectors)
        """
        return self._provide("jvp", module_id=module_id, function=function, vectors=vectors)

    @learner_method
    @since(2)
    def hvp(
        self, module_id: ModuleID, function: Callable[[], Tensor], vectors: Mapping[str, Any]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The gradient of a scalar of a module, and the Hessian of the scalar times a vector. Not within an update.

        Source: Pearlmutter 1994, "Fast Exact Multiplication by the Hessian", doi:10.1162/neco.1994.6.1.147.

        Args:
            module_id: the module.
            function: as in `jvp`.
            vectors: as in `jvp`; derivatives are taken by these parameters alone.

        Returns:
            `(gradients, products)`, each `{parameter name: tensor in the parameter's shape}`.

        Raises:
            ConfigError: as in `jvp`.
            LossError: as in `jvp`.

        Example:
            @hookimpl
            def hvp(learner, module_id, function, vectors):
                module = learner.module[module_id]
                weights = {name: each for name, each in module.get_state().items() if name in vectors}

                def at(weights):
                    with module.functional_call(weights):
                        return function()

                return mine.jvp(mine.grad(at), weights, vectors)
        """
        return self._provide("hvp", module_id=module_id, function=function, vectors=vectors)

    @learner_method
    def _reduce_gradients(self, gradients: Gradients) -> Gradients:
        """Sum the gradients over all learners of a group; a single learner returns them unchanged. Traced.

        Every learner has weighted its losses by its share of the rows, so the sum is the gradient of the whole batch.
        Default: through numpy, for backends that do not trace.

        Args:
            gradients: this learner's, `{parameter ref: gradient}`.

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
        """The function that clips one optimizer's gradients. Called once per step. Traced.

        Default: the core's formula over `learner.ops`; a backend may have a faster one.

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
        """Refuse an optimizer or parameters that cannot be used. Called before each optimizer is registered.

        Args:
            optimizer: the optimizer that the user registers.
            params: the parameters that it should step.

        Raises:
            OptimizerError: this backend does not know the optimizer, or these are not parameters.

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

        For backends with `Capability.FRAMEWORK_OPTIMIZERS`. Called once per registered optimizer, after
        `check_registered_optimizer`. Default: the optimizer itself. `learner.get_optimizer()` still returns the user's
        own object.

        Args:
            optimizer: an optimizer of `plugrad.optimizers` or of the framework.

        Returns:
            An object with `bind`, `step`, `parameters`, `variables` (restored by an undo) and `get_slots`,
            `slots_like`, `set_slots` (for the state).

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
            optimizer: a registered optimizer.

        Returns:
            The rate, as a float.

        Example:
            @hookimpl
            def get_optimizer_lr(optimizer):
                return float(optimizer.lr.numpy())
        """
        return self._provide("get_optimizer_lr", optimizer=optimizer)

    @learner_method
    def _set_optimizer_lr(self, optimizer: Any, lr: float) -> None:
        """Set the learning rate of an optimizer. Schedules call this after each update.

        It must not cause a new trace, so the rate is a variable.

        Args:
            optimizer: a registered optimizer.
            lr: the rate.

        Example:
            @hookimpl
            def set_optimizer_lr(optimizer, lr):
                optimizer.lr.assign(lr)
        """
        self._provide("set_optimizer_lr", optimizer=optimizer, lr=lr)
