"""Adding and removing modules of a learner: `Learner.add_module` and `Learner.remove_module`.

On an error the learner is left as it was. Everything that belongs to a module is stored under its id, so the other
modules do not change. Programs are made again: a traced one may read variables of a removed module.
"""

import re
from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from plugrad.errors import ConfigError, OptimizerError, did_you_mean
from plugrad.learner.modules.build import build_module, fill_spec
from plugrad.learner.modules.capabilities import check_precision
from plugrad.learner.state.buffers import find_buffers
from plugrad.learner.state.components import COMPONENTS
from plugrad.learner.state.state import restore_on_error
from plugrad.learner.update.default_hooks import TIMESTEP, apply_schedules
from plugrad.learner.update.minibatches import find_noise_columns
from plugrad.learner.update.optimizers import check_all_have_optimizers, count_parameters, has_parameters
from plugrad.learner.update.target_networks import make_target_network
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad.rl_module import RLModule
from plugrad.schedules import Coefficients
from plugrad.types import ALL_MODULES, ModuleID

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_OVERRIDES = "algorithm_config_overrides_per_module"


def add_module(
    learner: "Learner",
    module_id: ModuleID,
    spec: RLModuleSpec,
    overrides: Mapping[str, Any] | None,
    trained: Collection[ModuleID] | None,
) -> None:
    """See `Learner.add_module`.

    Args:
        learner: a built learner.
        module_id: a new id.
        spec: the module's spec.
        overrides: settings of this module; None: none.
        trained: the new `policies_to_train`; None: as before.
    """
    _check_new(learner, module_id, spec)
    with restore_on_error(learner):
        if overrides is not None:
            _change_config(learner, overrides={**_overrides(learner), module_id: dict(overrides)})
        config = learner.config.get_config_for_module(module_id)
        spec = replace(fill_spec(learner, module_id, spec), inference_only=False)
        module = build_module(learner, module_id, deepcopy(spec))
        module._move_to(learner.device)
        learner.module = type(learner.module)({**learner.module, module_id: module}).of_learner()
        learner.coefficients[module_id] = Coefficients(config, learner._get_tensor_variable)
        if module_id in learner.trainable_module_ids:
            check_precision(learner, [module_id])
            if has_parameters(learner, module_id):
                learner.configure_optimizers_for_module(module_id, config=config)
            learner.buffers = find_buffers(learner)
            learner.num_parameters = count_parameters(learner)
            if (target := make_target_network(learner, module_id, config)) is not None:
                learner.targets[module_id] = target
            if noise := find_noise_columns(learner, module_id, config):
                learner.noise_columns[module_id] = noise
        apply_schedules(learner, learner.counters.get(TIMESTEP, 0), module_id)
        _write_config(learner, trained)
        check_all_have_optimizers(learner)
        learner.notify("module_added", module_id=module_id)


def remove_module(learner: "Learner", module_id: ModuleID, trained: Collection[ModuleID] | None) -> None:
    """See `Learner.remove_module`.

    Args:
        learner: a built learner.
        module_id: the module.
        trained: the new `policies_to_train`; None: as before.
    """
    _check_own_optimizers(learner, module_id)
    if len(learner.module) == 1:
        raise ConfigError(f"{module_id!r} is this learner's only module: add another one first")
    with restore_on_error(learner):
        for component in COMPONENTS.values():
            component.drop(learner, module_id)
        learner.metrics.forget(module_id)
        kept = {other: each for other, each in _overrides(learner).items() if other != module_id}
        _change_config(learner, overrides=kept)
        _write_config(learner, trained)
        check_all_have_optimizers(learner)
        learner.notify("module_removed", module_id=module_id)


def _check_new(learner: "Learner", module_id: ModuleID, spec: Any) -> None:
    if not isinstance(module_id, str) or not _ID.fullmatch(module_id) or module_id == ALL_MODULES:
        raise ConfigError(
            f"module id {module_id!r}: expected 1 to 128 of the characters A-Z a-z 0-9 _ . - and not {ALL_MODULES!r}"
        )
    if module_id in learner.module:
        raise ConfigError(
            f"there is a module {module_id!r} already: remove_module({module_id!r}) first, or take another id"
        )
    if not isinstance(spec, RLModuleSpec):
        raise ConfigError(f"module_spec: expected an RLModuleSpec, found {type(spec).__name__}")


def _check_own_optimizers(learner: "Learner", module_id: ModuleID) -> None:
    """Refuse a module that shares an optimizer; `UnknownModuleError` if there is no such module."""
    _ = learner.module[module_id]
    for full_name, each in learner.registered_optimizers.items():
        others = sorted(each.modules - {module_id})
        if others and module_id in (each.module_id, *each.modules):
            raise OptimizerError(
                f"optimizer {full_name!r} of module {module_id!r} also steps parameters of {', '.join(others)}: "
                "register one optimizer for each module to be able to remove one of them"
            )


def _overrides(learner: "Learner") -> dict[ModuleID, Any]:
    return dict(getattr(learner.config, _OVERRIDES))


def _change_config(learner: "Learner", *, overrides: Mapping[ModuleID, Any]) -> None:
    learner.config = learner.config.changed(**{_OVERRIDES: dict(overrides)})


def _write_config(learner: "Learner", trained: Collection[ModuleID] | None) -> None:
    """Write the current modules into the config, and discard programs."""
    specs = {module_id: spec_of(module) for module_id, module in learner.module.items()}
    learner.config = learner.config.changed(
        rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs),
        policies=_policies(learner.config.policies, specs),
        policies_to_train=_policies_to_train(learner, trained),
    )
    learner.forget_programs()
    learner.weights_version += 1


def spec_of(module: RLModule) -> RLModuleSpec:
    """The spec of a module; a module with a built-in kind of network needs no class."""
    return RLModuleSpec(
        module_class=None if module.network is not None else module._made_by or type(module),
        observation_space=module.observation_space,
        action_space=module.action_space,
        model_config=deepcopy(module.model_config),
        inference_only=module.inference_only,
    )


def _policies(former: Any, specs: Mapping[ModuleID, RLModuleSpec]) -> Any:
    if former is None:
        return None
    # Their specs are in rl_module_spec.
    return dict.fromkeys(specs) if isinstance(former, Mapping) else list(specs)


def _policies_to_train(learner: "Learner", trained: Collection[ModuleID] | None) -> Any:
    """`policies_to_train`: the given ones, or else the former ones that still exist."""
    if trained is None:
        former = learner.config.policies_to_train
        return None if former is None else [each for each in former if each in learner.module]
    if isinstance(trained, Collection) and not isinstance(trained, str):
        for each in trained:
            if each not in learner.module:
                known = ", ".join(learner.module)
                hint = did_you_mean(str(each), learner.module)
                raise ConfigError(f"new_should_module_be_updated: no module {each!r} in {known}.{hint}")
        return list(trained)
    return trained  # the config refuses it and says what to do for a rule
