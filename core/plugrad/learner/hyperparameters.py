"""Whose hyperparameters a restored learner goes on with: the checkpoint's, unless those of its config are asked for.

Hyperparameters are the settings of the section `training`, those of single modules included; learning rates and
coefficients follow from them. Knows learners and configs; no file and no framework.
"""

import logging
from collections.abc import Mapping
from typing import Any, Literal

from plugrad.config.serialize import decode_field
from plugrad.errors import ConfigError

Hyperparameters = Literal["checkpoint", "config"]
TIMESTEP = "num_env_steps_sampled_lifetime"
_SECTION, _OVERRIDES = "training", "algorithm_config_overrides_per_module"
_log = logging.getLogger("plugrad")


def choose(learner: Any, whose: Hyperparameters, saved: Mapping[str, Any], path: Any) -> None:
    """Settle by whose hyperparameters a learner goes on, before it takes over a state; says so in the log.

    Args:
        learner: a built learner.
        whose: "checkpoint" or "config" (the learner's own).
        saved: the config of the checkpoint as data.
        path: of the checkpoint, for the log.

    Raises:
        ConfigError: `whose` is neither.
    """
    if whose not in ("checkpoint", "config"):
        raise ConfigError(f"hyperparameters={whose!r}: there is 'checkpoint' and 'config'")
    own, theirs = learner.config, _with_hyperparameters_of(learner.config, saved)
    changes = [
        f"{name}: {getattr(theirs, name)} in the checkpoint, {getattr(own, name)} in the config"
        for name in _names(own)
        if getattr(theirs, name) != getattr(own, name)
    ]
    if changes:
        _log.warning("%s: going on with the hyperparameters of the %s (%s)", path, whose, "; ".join(changes))
    if whose == "config":
        learner.configure(own)
    elif changes:
        learner.configure(theirs)


def without_scheduled(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state without what follows from the config; learning rates are set by `follow_schedules` afterwards."""
    return {component: each for component, each in state.items() if component != "coefficients"}


def follow_schedules(learner: Any) -> None:
    """Set learning rates and coefficients to what the learner's own config says for the present timestep."""
    timestep = learner.counters.get(TIMESTEP, 0)
    for each in learner.registered_optimizers.values():
        if each.schedule is not None:
            learner._set_optimizer_lr(each.optimizer, each.schedule.at(timestep))
    for coefficients in learner.coefficients.values():
        coefficients.move_to(timestep)


def _names(config: Any) -> list[str]:
    return [name for name, info in config.fields().items() if info.section == _SECTION or name == _OVERRIDES]


def _with_hyperparameters_of(config: Any, saved: Mapping[str, Any]) -> Any:
    fields = config.fields()
    values = {
        name: decode_field(fields[name], saved[name], none_words=False)
        for name in _names(config)
        if name in saved
    }
    return config.changed(**values)
