"""The optimizers of a learner: registering and finding them, gradient names, and parameters that have no optimizer.

A parameter without an optimizer would keep its initial value, and nobody would see it. At build it is an error, unless
it is frozen by intent. So is one that a user's model adds or unfreezes after the learner was built.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from plugrad.config import Config
from plugrad.errors import ConfigError, OptimizerError, UnknownParameterError, did_you_mean
from plugrad.gradients import FlatGradients, Layout, as_flat, joined, layouts_in
from plugrad.hooks.backend_spec import Capability
from plugrad.hooks.learner_protocol import RegisteredOptimizer
from plugrad.hooks.markers import hookimpl
from plugrad.learner.modules.capabilities import check_here
from plugrad.optimizers import DelayedOptimizer, Optimizer, make_optimizer
from plugrad.schedules import Schedule
from plugrad.types import ALL_MODULES, ModuleID, ParamRef, Tensor

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner


@hookimpl
def configure_optimizers(learner: "Learner") -> None:
    """One call of `configure_optimizers_for_module` for each module that the backend can train."""
    for module_id in learner.trainable_module_ids:
        if has_parameters(learner, module_id):
            learner.configure_optimizers_for_module(
                module_id, config=learner.config.get_config_for_module(module_id)
            )


def has_parameters(learner: "Learner", module_id: ModuleID) -> bool:
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
def configure_optimizers_for_module(learner: "Learner", module_id: ModuleID, config: Config) -> None:
    """One optimizer, `config.optimizer`, with `config.lr`. See `AlgorithmSpec.configure_optimizers_for_module`."""
    learner.register_optimizer(
        module_id=module_id,
        optimizer=make_optimizer(config.optimizer),
        params=learner.get_parameters(learner.module[module_id]),
        lr_or_lr_schedule=config.lr,
    )


@hookimpl
def register_optimizer(
    learner: "Learner",
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


def _modules_with(learner: "Learner", params: Sequence[Any]) -> frozenset[ModuleID]:
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


def _check_free(learner: "Learner", registered: RegisteredOptimizer) -> None:
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
def get_optimizer(learner: "Learner", module_id: ModuleID, optimizer_name: str) -> Any:
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
def get_optimizers_for_module(learner: "Learner", module_id: ModuleID) -> list[tuple[str, Any]]:
    """The optimizers of one module; for `ALL_MODULES` all. See `LearnerSpec.get_optimizers_for_module`."""
    return [
        (each.name, each.optimizer)
        for each in learner.registered_optimizers.values()
        if module_id in (ALL_MODULES, each.module_id)
    ]


@hookimpl
def filter_param_dict_for_optimizer(
    learner: "Learner", param_dict: Mapping[ParamRef, Tensor], optimizer: Any
) -> Mapping[ParamRef, Tensor]:
    """The entries of one optimizer; flat gradients stay flat. See `LearnerSpec.filter_param_dict_for_optimizer`."""
    registered = registration_of(learner, optimizer)
    if isinstance(param_dict, FlatGradients):
        part = param_dict.only([registered.layout])
        if part.layouts or not layouts_in(param_dict, [registered.layout]):
            return part
    return {ref: param_dict[ref] for ref in registered.refs if param_dict.get(ref) is not None}


def registration_of(learner: "Learner", optimizer: Any) -> RegisteredOptimizer:
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
    learner: "Learner", parts: Sequence[Mapping[ParamRef, Tensor]]
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


def count_parameters(learner: "Learner") -> dict[ModuleID, int]:
    """The number of trained parameters (tensors, not numbers) of each module that the backend can train."""
    return {each: len(learner.get_parameters(learner.module[each])) for each in learner.trainable_module_ids}


def check_no_late_parameters(learner: "Learner", ids: Iterable[ModuleID]) -> None:
    """Refuse modules that have more parameters than when the learner was built.

    Args:
        learner: after the first run of a program.
        ids: ids of the modules that it trained; ids of step columns are ignored.

    Raises:
        ConfigError: names the parameters that no optimizer has.
    """
    for module_id in (each for each in ids if each in learner.module):
        module = learner.module[module_id]
        parameters = learner.get_parameters(module)
        if len(parameters) > learner.num_parameters[module_id]:
            trained = {ref for layout in learner.layouts for ref in layout.refs}
            learner.forget_programs()  # the next update counts as the first one again
            late = [ref for ref in map(learner.get_param_ref, parameters) if ref not in trained]
            raise ConfigError(
                f"module {module_id!r} ({module.class_name}) has parameters that it had not when the learner was "
                f"built, so no optimizer trains them: {', '.join(late)}. Make and build all layers where the model is "
                "made: in __init__ or setup; layers that their first call would build, by layer.build(shape)",
                module_id=module_id,
                found=late,
            )


def freeze_parameters(learner: "Learner", module_id: ModuleID, names: Collection[str]) -> None:
    """Keep parameters at their present values: no optimizer has to step them. See `Learner.freeze_parameters`.

    Args:
        learner: while its optimizers are made.
        module_id: the module.
        names: of parameters, or of layers, which stand for all parameters in them.

    Raises:
        ConfigError: the module has no such trainable parameter or layer.
        UnknownModuleError: there is no such module.
    """
    known = [ref.removeprefix(f"{module_id}/") for ref in _refs(learner, module_id)]
    if isinstance(names, str) or not isinstance(names, Collection):
        raise ConfigError(f"freeze_parameters: expected a list of names, found {names!r}: type [{names!r}]")
    found = {name: [each for each in known if in_layer(each, name)] for name in map(str, names)}
    for name, own in found.items():
        if not own:
            raise ConfigError(
                f"freeze_parameters: module {module_id!r} has no trainable parameter or layer {name!r}; there are "
                f"{', '.join(known)}.{did_you_mean(name, known)}",
                module_id=module_id,
            )
    former = learner.frozen_parameters.get(module_id, frozenset())
    learner.frozen_parameters[module_id] = former.union(*found.values())


def in_layer(parameter: str, layer: str) -> bool:
    """Whether a parameter is of a layer: `pi.0.weight` is in `pi` and in `pi.0`; `pixels.weight` is not in `pi`.

    Args:
        parameter: its name in `module.get_state()`.
        layer: the name of a layer, or of the parameter itself.

    Returns:
        True if it is.
    """
    return parameter == layer or parameter.startswith(f"{layer}.")


def check_all_have_optimizers(learner: "Learner", updated: Collection[ModuleID] | None = None) -> None:
    """Refuse trainable parameters that no optimizer steps and that are not frozen by intent.

    Modules outside `policies_to_train` may have some. A learner without any optimizer may get them after the build, so
    its modules are checked when they are first updated.

    Args:
        learner: with modules and optimizers.
        updated: modules that are updated with a new program; None: the learner is built, or its modules changed.

    Raises:
        ConfigError: names them, the module's optimizers, and what to write.
    """
    stepped = {ref for layout in learner.layouts for ref in layout.refs}
    trained = learner.config.policies_to_train
    for module_id in learner.trainable_module_ids:
        prefix, refs = f"{module_id}/", _refs(learner, module_id)
        is_due = bool(stepped) if updated is None else module_id in updated and not stepped.intersection(refs)
        if not is_due or (trained is not None and module_id not in trained):
            continue
        frozen = learner.frozen_parameters.get(module_id, frozenset())
        left = [
            ref.removeprefix(prefix)
            for ref in refs
            if ref not in stepped and ref.removeprefix(prefix) not in frozen
        ]
        if not left:
            continue
        shown = ", ".join(map(repr, left[:6])) + (f" and {len(left) - 6} more" if len(left) > 6 else "")
        optimizers = "; ".join(
            f"{each.name!r} steps {', '.join(ref.removeprefix(prefix) for ref in each.refs[:4])}"
            + (", ..." if len(each.refs) > 4 else "")
            for each in learner.registered_optimizers.values()
            if module_id in each.modules
        )
        raise ConfigError(
            f"module {module_id!r} ({learner.module[module_id].class_name}) has parameters that no optimizer steps, "
            f"so that they would keep their initial values: {shown}. Its optimizers: {optimizers or 'none'}. Where "
            "optimizers are chosen by names, move these layers into one of those; else give them to "
            "register_optimizer(params=...) in configure_optimizers_for_module. If they are to stay as they are, "
            "freeze them where the model is made (requires_grad_(False), trainable = False, nnx.Variable), or call "
            f"learner.freeze_parameters({module_id!r}, [{left[0]!r}, ...]) in configure_optimizers_for_module",
            module_id=module_id,
            found=left,
        )


def _refs(learner: "Learner", module_id: ModuleID) -> list[str]:
    """Names of a module's trainable parameters; one that modules share has the name of the first."""
    return [learner.get_param_ref(param) for param in learner.get_parameters(learner.module[module_id])]
