"""The optimizers of a learner: registering and finding them, and checking gradient names."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plugrad.config import Config
from plugrad.errors import ConfigError, OptimizerError, UnknownParameterError, did_you_mean
from plugrad.every_nth import DelayedOptimizer
from plugrad.gradients import FlatGradients, Layout, as_flat, joined, layouts_in
from plugrad.hooks.backend_spec import Capability
from plugrad.hooks.learner_protocol import RegisteredOptimizer
from plugrad.hooks.markers import hookimpl
from plugrad.learner.internals import LearnerInternals
from plugrad.learner.modules.capabilities import check_here
from plugrad.optimizers import Optimizer, make_optimizer
from plugrad.schedules import Schedule
from plugrad.types import ALL_MODULES, ModuleID, ParamRef, Tensor


@hookimpl
def configure_optimizers(learner: LearnerInternals) -> None:
    """One call of `configure_optimizers_for_module` for each module that the backend can train."""
    for module_id in learner.trainable_module_ids:
        if has_parameters(learner, module_id):
            learner.configure_optimizers_for_module(
                module_id, config=learner.config.get_config_for_module(module_id)
            )


def has_parameters(learner: LearnerInternals, module_id: ModuleID) -> bool:
    """Whether a module has parameters to train; a module outside `policies_to_train` needs none.

    Args:
        learner: a learner with modules.
        module_id: a module of the backend.

    Returns:
        True if it has parameters.

    Raises:
        ConfigError: it has none, but should be trained.
    """
    if learner.get_parameters(learner.module[module_id]):
        return True
    trained = learner.config.policies_to_train
    if trained is not None and module_id not in trained:
        return False
    raise ConfigError(
        f"module {module_id!r} ({learner.module[module_id].class_name}) has no parameters to train. Are all frozen? "
        "Then leave it out of policies_to_train. Layers that their first call builds have none before: call them "
        "once, or layer.build(shape), where they are made",
        module_id=module_id,
    )


@hookimpl
def configure_optimizers_for_module(learner: LearnerInternals, module_id: ModuleID, config: Config) -> None:
    """One optimizer, `config.optimizer`, with `config.lr`. See `AlgorithmSpec.configure_optimizers_for_module`."""
    learner.register_optimizer(
        module_id=module_id,
        optimizer=make_optimizer(config.optimizer),
        params=learner.get_parameters(learner.module[module_id]),
        lr_or_lr_schedule=config.lr,
    )


@hookimpl
def register_optimizer(
    learner: LearnerInternals,
    module_id: ModuleID,
    optimizer_name: str,
    optimizer: Any,
    params: Sequence[Any],
    lr_or_lr_schedule: Any,
    every: int,
) -> None:
    """Check and bind an optimizer; set its learning rate. See `LearnerSpec.register_optimizer`."""
    if not isinstance(optimizer, Optimizer):
        check_here(learner, Capability.FRAMEWORK_OPTIMIZERS, f"optimizer {optimizer_name!r}")
    learner._check_registered_optimizer(optimizer, params)
    # Modules that share a layer give its parameters twice: they are stepped once.
    by_ref: dict[ParamRef, Any] = {}
    for param in params:
        by_ref.setdefault(learner.get_param_ref(param), param)
    refs, params = tuple(by_ref), list(by_ref.values())
    schedule = None if lr_or_lr_schedule is None else Schedule.of(lr_or_lr_schedule)
    _check_every(every)
    optimizer_adapter = learner._wrap_optimizer(optimizer)
    if every > 1:
        optimizer_adapter = DelayedOptimizer(optimizer_adapter, int(every))
    registered = RegisteredOptimizer(
        module_id,
        optimizer_name,
        optimizer,
        optimizer_adapter,
        refs,
        _modules_with(learner, params),
        schedule,
    )
    _check_free(learner, registered)
    optimizer_adapter.bind(learner._flatten_parameters(params), learner._get_tensor_variable, _zeros)
    learner.registered_optimizers[registered.full_name] = registered
    if schedule is not None:
        learner._set_optimizer_lr(optimizer, schedule.at(0))


def _check_every(every: Any) -> None:
    if not isinstance(every, int | np.integer) or isinstance(every, bool) or every < 1:
        raise OptimizerError(
            f"every={every!r}: expected a whole number of gradient steps from 1 up; 2 steps in each second one"
        )


def _modules_with(learner: LearnerInternals, params: Sequence[Any]) -> frozenset[ModuleID]:
    """Ids of the modules that have any of these parameters."""
    own = {id(param) for param in params}
    return frozenset(
        module_id
        for module_id in learner.trainable_module_ids
        if not own.isdisjoint(map(id, learner.get_parameters(learner.module[module_id])))
    )


@hookimpl
def wrap_optimizer(optimizer: Any) -> Optimizer:
    """plugrad's optimizers need no wrapper."""
    wrapped: Optimizer = optimizer
    return wrapped


def _zeros(size: int) -> Any:
    return np.zeros(size, np.float32)


def _check_free(learner: LearnerInternals, registered: RegisteredOptimizer) -> None:
    if registered.full_name in learner.registered_optimizers:
        raise OptimizerError(
            f"module {registered.module_id!r} has an optimizer {registered.name!r} already: "
            "give optimizer_name= another name"
        )
    if registered.optimizer_adapter.is_bound or any(
        each.optimizer is registered.optimizer for each in learner.registered_optimizers.values()
    ):
        raise OptimizerError("this optimizer is registered already: make a new one")
    for other in learner.registered_optimizers.values():
        shared = set(other.refs) & set(registered.refs)
        if shared:
            raise OptimizerError(
                f"parameter {min(shared)!r} is stepped by optimizer {other.full_name!r} already: "
                "a parameter has one optimizer"
            )


@hookimpl
def get_optimizer(learner: LearnerInternals, module_id: ModuleID, optimizer_name: str) -> Any:
    """Find an optimizer by full name, or by module and short name. See `LearnerSpec.get_optimizer`.

    Raises:
        UnknownOptimizerError: there is no such optimizer.
    """
    known: Mapping[str, RegisteredOptimizer] = learner.registered_optimizers
    full_name = f"{module_id}_{optimizer_name}"
    for name in (optimizer_name, full_name):
        if name in known:
            return known[name].optimizer
    raise UnknownOptimizerError(
        f"no optimizer {full_name!r}; there are: {', '.join(known) or 'none'}.{did_you_mean(full_name, known)}"
    )


class UnknownOptimizerError(OptimizerError, KeyError):
    """No optimizer is registered under this name."""


@hookimpl
def get_optimizers_for_module(learner: LearnerInternals, module_id: ModuleID) -> list[tuple[str, Any]]:
    """The optimizers of one module; for `ALL_MODULES` all. See `LearnerSpec.get_optimizers_for_module`."""
    return [
        (each.name, each.optimizer)
        for each in learner.registered_optimizers.values()
        if module_id in (ALL_MODULES, each.module_id)
    ]


@hookimpl
def filter_param_dict_for_optimizer(
    learner: LearnerInternals, param_dict: Mapping[ParamRef, Tensor], optimizer: Any
) -> Mapping[ParamRef, Tensor]:
    """The entries of one optimizer; flat gradients stay flat. See `LearnerSpec.filter_param_dict_for_optimizer`."""
    registered = registration_of(learner, optimizer)
    if isinstance(param_dict, FlatGradients):
        part = param_dict.only([registered.layout])
        if len(part) or not layouts_in(param_dict, [registered.layout]):
            return part
    return {ref: param_dict[ref] for ref in registered.refs if param_dict.get(ref) is not None}


def registration_of(learner: LearnerInternals, optimizer: Any) -> RegisteredOptimizer:
    """The `RegisteredOptimizer` of an optimizer.

    Args:
        learner: a built learner.
        optimizer: the object that was registered.

    Returns:
        Its entry in `registered_optimizers`.

    Raises:
        UnknownOptimizerError: it was never registered.
    """
    for each in learner.registered_optimizers.values():
        if each.optimizer is optimizer:
            return each
    raise UnknownOptimizerError(
        f"{optimizer!r} is not registered with this learner: call register_optimizer first"
    )


def merge_gradients(
    learner: LearnerInternals, parts: Sequence[Mapping[ParamRef, Tensor]]
) -> Mapping[ParamRef, Tensor]:
    """Merge the gradients of several optimizers into one mapping, which is flat if all are.

    Args:
        learner: in a step.
        parts: gradients of different optimizers.

    Returns:
        All entries.
    """
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, FlatGradients) for part in parts):
        flats = [as_flat(learner.ops, part) for part in parts]
        return joined(learner.ops, [(part, each) for part in flats for each in part.layouts])
    return {ref: gradient for part in parts for ref, gradient in part.items()}


def check_gradient_names(gradients: Any, layouts: Sequence[Layout], where: str) -> None:
    """Refuse gradients for names that no optimizer steps. Parameters may be missing: they stay as they are.

    Args:
        gradients: `{param ref: gradient or None}`.
        layouts: layouts of the possible optimizers.
        where: for the error: where the gradients come from.

    Raises:
        UnknownParameterError: a key is not a parameter's name.
        OptimizerError: it is not a mapping.
    """
    if isinstance(gradients, FlatGradients) and set(gradients.layouts) <= set(layouts):
        return
    if not isinstance(gradients, Mapping):
        raise OptimizerError(
            f"{where}: expected gradients by name, {{param ref: gradient}}, found {type(gradients).__name__}"
        )
    known = {ref: None for layout in layouts for ref in layout.refs}
    unknown = [ref if isinstance(ref, str) else type(ref).__name__ for ref in gradients if ref not in known]
    if unknown:
        shown = ", ".join(map(repr, unknown[:4])) + (
            f" and {len(unknown) - 4} more" if len(unknown) > 4 else ""
        )
        raise UnknownParameterError(
            f"{where}: gradients of {shown}, which no optimizer steps: keys are names such as "
            f"{next(iter(known), '<module id>/<parameter>')!r}, and learner.get_param_ref(param) gives a parameter's."
            f"{did_you_mean(unknown[0], known)}",
            unknown=unknown,
            known=list(known),
        )
