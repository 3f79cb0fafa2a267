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


def chosen(config: Any, whose: Hyperparameters, saved: Mapping[str, Any]) -> Any:
    """The config to go on with.

    Args:
        config: of who restores.
        whose: "checkpoint" or "config".
        saved: the config of the checkpoint as data.

    Raises:
        ConfigError: `whose` is neither.
    """
    if whose not in ("checkpoint", "config"):
        raise ConfigError(f"hyperparameters={whose!r}: there is 'checkpoint' and 'config'")
    return config if whose == "config" else _with_hyperparameters_of(config, saved)


def log_differences(config: Any, whose: Hyperparameters, saved: Mapping[str, Any], path: Any) -> None:
    """Say by whose hyperparameters training goes on, and in what the two differ, if they do."""
    theirs = _with_hyperparameters_of(config, saved)
    changes = [
        f"{name}: {getattr(theirs, name)} in the checkpoint, {getattr(config, name)} in the config"
        for name in _names(config)
        if getattr(theirs, name) != getattr(config, name)
    ]
    if changes:
        _log.warning("%s: going on with the hyperparameters of the %s; %s", path, whose, "; ".join(changes))


def follow_schedules(learner: Any) -> None:
    """Set learning rates and coefficients to what the learner's own config says for the present timestep."""
    timestep = learner.counters.get(TIMESTEP, 0)
    for each in learner.registered_optimizers.values():
        if each.schedule is not None:
            learner._set_optimizer_lr(each.optimizer, each.schedule.at(timestep))
    for coefficients in learner.coefficients.values():
        coefficients.move_to(timestep)


def _names(config: Any) -> list[str]:
    # What names code is never taken from a checkpoint.
    fields = config.fields().items()
    return [
        name
        for name, info in fields
        if (info.section == _SECTION and not info.importable) or name == _OVERRIDES
    ]


def _with_hyperparameters_of(config: Any, saved: Mapping[str, Any]) -> Any:
    fields = config.fields()
    values = {
        name: decode_field(fields[name], saved[name], none_words=False)
        for name in _names(config)
        if name in saved
    }
    return config.changed(**values)
