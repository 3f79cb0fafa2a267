"""`additional_update` of a Learner: what is done once after an update is part of `update()` today.

There it is `after_gradient_based_update`; the older method is that hook for some modules and at a timestep.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from typing import Any, cast

from plugrad.learner import Learner
from plugrad.types import ALL_MODULES, ModuleID
from plugrad_rllib.arguments import accepted
from plugrad_rllib.constants import KL_KEY, LEARNER_RESULTS_CURR_KL_COEFF_KEY, LEARNER_RESULTS_CURR_LR_KEY
from plugrad_rllib.overrides import is_beneath, newer, older

AFTER = "after_gradient_based_update"
ADDITIONAL = ("additional_update", "additional_update_for_module")
TIMESTEP = "num_env_steps_sampled_lifetime"
SAMPLED_KL = "sampled_kl_values"
Results = dict[ModuleID, dict[str, Any]]


class OlderUpdates:
    """The older methods of a Learner."""

    def additional_update(
        self: Any, *, timestep: int, module_ids_to_update: Collection[ModuleID] | None = None, **kw: Any
    ) -> Results:
        """Move the schedules and coefficients of these modules; `update(timesteps=...)` does it by itself.

        Args:
            timestep: environment steps sampled until now.
            module_ids_to_update: None: all.
            **kw: for PPO `sampled_kl_values={module_id: divergence}`. The divergence that the last `update()` reported
                has moved the coefficient already, and does not move it again.

        Returns:
            `{module_id: results}`: learning rates as `<optimizer>_learning_rate` and `<optimizer>_curr_lr`,
            coefficients as `curr_<name>`, and what the learner registered.
        """
        after = newer(self, AFTER, "additional_update", "update(timesteps=...), which does it")
        ids = list(self.module if module_ids_to_update is None else module_ids_to_update)
        if not is_beneath(self, AFTER):
            return _directly(cast("Learner", self), after, ids, timestep, kw)
        return {module_id: self._additional_update_of(module_id, timestep, kw) for module_id in ids}

    def additional_update_for_module(
        self: Any, *, module_id: ModuleID, config: Any = None, timestep: int, **kw: Any
    ) -> dict[str, Any]:
        """`additional_update` of one module; returns its results."""
        after = newer(self, AFTER, "additional_update_for_module", "update(timesteps=...), which does it")
        learner = cast("Learner", self)
        if not is_beneath(learner, AFTER):
            return _directly(learner, after, [module_id], timestep, kw)[module_id]
        given = vars(learner)["_timesteps"]
        with _others_stay(learner, [module_id]):
            after(timesteps=given if timestep == _timestep(learner, given) else {TIMESTEP: timestep})
        return _rates_and_coefficients(learner, module_id)

    def _additional_update_of(
        self: Any, module_id: ModuleID, timestep: int, kw: dict[str, Any]
    ) -> dict[str, Any]:
        method = older(self, "additional_update_for_module")
        config = self.config.get_config_for_module(module_id)
        given = {"module_id": module_id, "config": config, "timestep": timestep, **kw}
        return dict(method(**accepted(method, given)) or {})


def cross_after_update(learner: Learner, below: Any, *, timesteps: Mapping[str, int]) -> None:
    """Call the overrides after an update, or in a direct call of `additional_update`; report what they return."""
    vars(learner)["_timesteps"] = timesteps
    method = older(learner, "additional_update")
    results = method(**accepted(method, vars(learner).pop("_asked", None) or _of_update(learner, timesteps)))
    for module_id, values in (results or {}).items():
        learner.register_metrics(module_id, values)


def _of_update(learner: Learner, timesteps: Mapping[str, int]) -> dict[str, Any]:
    """The older arguments, from what the present update has trained and reported."""
    results = learner.metrics.results
    trained = [module_id for module_id in learner.module if module_id in results]
    given = {"timestep": _timestep(learner, timesteps), "module_ids_to_update": trained}
    overrides = (getattr(learner, each) for each in ADDITIONAL)
    if any(SAMPLED_KL in signature(each).parameters for each in overrides):
        given[SAMPLED_KL] = {each: results[each][KL_KEY] for each in trained if KL_KEY in results[each]}
    return given


def _timestep(learner: Learner, timesteps: Mapping[str, int]) -> int:
    """Environment steps sampled, or as many as were trained on if the update was not told."""
    trained = learner.counters.get(f"num_env_steps_trained_lifetime/{ALL_MODULES}", 0)
    return int(timesteps.get(TIMESTEP, trained))


def _directly(
    learner: Learner, after: Any, ids: list[ModuleID], timestep: int, kw: dict[str, Any]
) -> Results:
    learner._check_is_built()
    _ = [learner.module[module_id] for module_id in ids]
    former = learner.metrics.results
    learner.metrics.begin_update()
    for module_id, divergence in kw.get(SAMPLED_KL, {}).items():
        if module_id in ids and _moves_kl_coefficient(learner, module_id, former, divergence):
            learner.register_metric(module_id, KL_KEY, divergence)
    vars(learner)["_asked"] = {"timestep": timestep, "module_ids_to_update": ids, **kw}
    try:
        with _others_stay(learner, ids):
            after(timesteps={TIMESTEP: timestep})
    finally:
        vars(learner).pop("_asked", None)
    registered, learner.metrics.results = learner.metrics.results, {}
    return {
        module_id: {**_rates_and_coefficients(learner, module_id), **registered.get(module_id, {})}
        for module_id in ids
    }


def _moves_kl_coefficient(learner: Learner, module_id: ModuleID, results: Results, divergence: float) -> bool:
    """Not where there is no KL loss, and not by what the last update reported: it was moved by that."""
    reported = results.get(module_id, {})
    is_spent = LEARNER_RESULTS_CURR_KL_COEFF_KEY in reported and reported.get(KL_KEY) == divergence
    return not is_spent and bool(
        getattr(learner.config.get_config_for_module(module_id), "use_kl_loss", False)
    )


@contextmanager
def _others_stay(learner: Learner, ids: Collection[ModuleID]) -> Iterator[None]:
    """Put back learning rates, coefficients, target networks and counters of all other modules: the hook moves them."""
    others = set(learner.module) - set(ids)
    variables = [each.variable for module_id, each in learner.targets.items() if module_id in others]
    for registered in learner.registered_optimizers.values():
        variables += registered.optimizer_adapter.variables if registered.modules <= others else []
    for module_id in others:
        variables += learner.coefficients[module_id].variables.values()
    values = [each.snapshot() for each in variables]
    counters = _counters_of(learner, others)
    try:
        yield
    finally:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        for name in _counters_of(learner, others):
            del learner.counters[name]
        learner.counters.update(counters)


def _counters_of(learner: Learner, ids: Collection[ModuleID]) -> dict[str, int]:
    return {name: number for name, number in learner.counters.items() if name.split("/")[-1] in ids}


def _rates_and_coefficients(learner: Learner, module_id: ModuleID) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in learner.registered_optimizers.values():
        if each.module_id == module_id:
            rate = learner._get_optimizer_lr(each.optimizer)
            found[f"{each.name}_learning_rate"] = found[f"{each.name}_{LEARNER_RESULTS_CURR_LR_KEY}"] = rate
    for name, variable in learner.coefficients[module_id].variables.items():
        found[f"curr_{name}"] = float(variable.numpy())
    return found
