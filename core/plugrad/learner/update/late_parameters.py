"""Parameters without an optimizer: they would keep their initial values, and nobody would see it.

At build they are an error, unless they are frozen by intent. So are those that a user's model adds or unfreezes after
the learner was built.
"""

from collections.abc import Collection, Iterable

from plugrad.errors import ConfigError, did_you_mean
from plugrad.learner.internals import LearnerInternals
from plugrad.types import ModuleID


def count_parameters(learner: LearnerInternals) -> dict[ModuleID, int]:
    """The number of trained parameters (tensors, not numbers) of each module that the backend can train."""
    return {each: len(learner.get_parameters(learner.module[each])) for each in learner.trainable_module_ids}


def check_no_late_parameters(learner: LearnerInternals, ids: Iterable[ModuleID]) -> None:
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


def freeze_parameters(learner: LearnerInternals, module_id: ModuleID, names: Collection[str]) -> None:
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


def check_all_have_optimizers(learner: LearnerInternals, updated: Collection[ModuleID] | None = None) -> None:
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


def _refs(learner: LearnerInternals, module_id: ModuleID) -> list[str]:
    """Names of a module's trainable parameters; one that modules share has the name of the first."""
    return [learner.get_param_ref(param) for param in learner.get_parameters(learner.module[module_id])]
