"""Older settings of a config, translated to those of today."""

from collections.abc import Mapping
from typing import Any

from plugrad.config import Config
from plugrad_rllib.overrides import add_names
from plugrad_rllib.warning import warn_older

RENAMED_SETTINGS: Mapping[str, Mapping[str, str]] = {
    "training": {"num_sgd_iter": "num_epochs", "sgd_minibatch_size": "minibatch_size"},
    "rl_module": {"model_config_dict": "model_config"},
    "framework": {"framework": "backend"},
}
"""`{fluent method: {older argument: argument}}`."""
RESOURCES = {
    "num_learner_workers": "num_learners",
    "num_cpus_per_learner_worker": "num_cpus_per_learner",
    "num_gpus_per_learner_worker": "num_gpus_per_learner",
}
"""Arguments of `.resources(...)` that `.learners(...)` names otherwise."""


def _resource(old: str) -> Any:
    def value(self: Any) -> Any:
        warn_older(f"AlgorithmConfig.{old}", f"AlgorithmConfig.{RESOURCES[old]}")
        return getattr(self, RESOURCES[old])

    return property(value)


class OlderConfig:
    """What a config was asked for by other names."""

    num_learner_workers = _resource("num_learner_workers")
    num_cpus_per_learner_worker = _resource("num_cpus_per_learner_worker")
    num_gpus_per_learner_worker = _resource("num_gpus_per_learner_worker")

    @classmethod
    def overrides(cls: Any, **settings: Any) -> dict[str, Any]:
        """These settings as a dict, such as one of `algorithm_config_overrides_per_module`.

        Raises:
            ConfigError: a name is no setting, or a value is refused.
        """
        warn_older(f"{cls.__name__}.overrides(...)", "a dict {setting: value}")
        cls().changed(**settings)
        return settings

    def resources(self: Any, **settings: Any) -> Any:
        """`.learners(...)` with the names of Ray 2.6 to 2.23."""
        warn_older("AlgorithmConfig.resources()", "AlgorithmConfig.learners()")
        return self.learners(**{RESOURCES.get(name, name): value for name, value in settings.items()})


def settings_of_today(config: Any, section: str, settings: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A config and the arguments of its fluent method `section`, by their names of today.

    `training(model=...)` is another section's setting, so the config has it already.
    """
    settings = dict(settings)
    if section == "training" and "model" in settings:
        warn_older("training(model=...)", "rl_module(model_config=...)")
        config = config.rl_module(model_config={**config.model_config, **settings.pop("model")})
    renamed = RENAMED_SETTINGS.get(section, {})
    for old in [name for name in settings if name in renamed]:
        warn_older(f"{section}({old}=...)", f"{section}({renamed[old]}=...)")
    return config, {renamed.get(name, name): value for name, value in settings.items()}


def adapt() -> None:
    """Make the older names of a config work."""
    add_names(Config, OlderConfig)
