"""Older settings of a config: translated to those of today, or refused with the way. Knows no config class."""

from collections.abc import Mapping
from typing import Any, Self

from plugrad.legacy.warning import warn_older

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
    "local_gpu_idx": "local_gpu_idx",
}
"""Arguments of `.resources(...)`, as `.learners(...)` has them."""


def translated(section: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a fluent call under their names of today."""
    renamed = RENAMED_SETTINGS.get(section, {})
    for old in [name for name in settings if name in renamed]:
        warn_older(f"{section}({old}=...)", f"{section}({renamed[old]}=...)", stacklevel=5)
    return {renamed.get(name, name): value for name, value in settings.items()}


class LegacyConfig:
    """Older methods of a config."""

    model_config: dict[str, Any]

    def resources(self, **settings: Any) -> Self:
        """`.learners(...)` with the names of Ray 2.6 to 2.23."""
        warn_older("AlgorithmConfig.resources()", "AlgorithmConfig.learners()")
        return self.learners(**{RESOURCES.get(name, name): value for name, value in settings.items()})

    def _with_model(self, model: Mapping[str, Any]) -> Self:
        """`training(model=...)`: over the present settings of the networks, as it was then."""
        warn_older("training(model=...)", "rl_module(model_config=...)", stacklevel=4)
        return self.rl_module(model_config={**self.model_config, **model})

    def learners(self, **settings: Any) -> Self:
        """See the config."""
        raise NotImplementedError

    def rl_module(self, **settings: Any) -> Self:
        """See the config."""
        raise NotImplementedError
