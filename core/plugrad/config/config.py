"""`Config`: changing settings by section. What is built from them is `plugrad.algorithm_config`'s business.

Which settings there are lives in `settings`, how they change in `fluent`, how they are checked in `checks` and
`rules`, how they are written in `documents` and `serialize`.
"""

from dataclasses import dataclass
from typing import Any, Self

from plugrad.config.optimizer_settings import merged_optimizer
from plugrad.config.rules import check_consistency, check_overrides
from plugrad.config.settings import Settings
from plugrad.importing.names import resolve_name
from plugrad.types import ModuleID

_UNSET: Any = object()


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """Settings of a Learner, a LearnerGroup or an Algorithm; frozen, equal by value.

    Each fluent call returns a new config: `config = PPOConfig().environment("CartPole-v1").training(lr=0.1)`.
    `AlgorithmConfig.fields()` lists every setting with its help, default and rules.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_overrides(self)

    def environment(self, env: Any = _UNSET, **settings: Any) -> Self:
        """What is learned in: `env`, `observation_space`, `action_space`, `env_config`."""
        return self._change("environment", _with(settings, env=env))

    def framework(self, backend: str = _UNSET, **settings: Any) -> Self:
        """Which backend runs the update, and how: `backend`, `compile`, `device`."""
        return self._change("framework", _with(settings, backend=backend))

    def training(self, **settings: Any) -> Self:
        """The update, and the algorithm's own settings: `lr`, `gamma`, `grad_clip`, `optimizer`, ...

        `optimizer` is merged over the present one, unless its type changes.
        """
        if "optimizer" in settings:
            settings["optimizer"] = merged_optimizer(self.optimizer, settings["optimizer"])
        return self._change("training", settings)

    def learners(self, **settings: Any) -> Self:
        """Who runs the update: `num_learners` (0: this process), `learner_class`, `on_failure`, ..."""
        return self._change("learners", settings)

    def rl_module(self, **settings: Any) -> Self:
        """The networks: `rl_module_spec`, `model_config`, `algorithm_config_overrides_per_module`."""
        return self._change("rl_module", settings)

    def multi_agent(self, **settings: Any) -> Self:
        """Agents and modules: `policies`, `agent_to_module`, `policies_to_train`."""
        return self._change("multi_agent", settings)

    def env_runners(self, **settings: Any) -> Self:
        """How experience is collected: `num_env_runners`, `num_envs_per_env_runner`, ..."""
        return self._change("env_runners", settings)

    def evaluation(self, **settings: Any) -> Self:
        """When the policy is evaluated: `evaluation_interval`, `evaluation_num_episodes`."""
        return self._change("evaluation", settings)

    def debugging(self, **settings: Any) -> Self:
        """Reproducibility: `seed`."""
        return self._change("debugging", settings)

    def plugins(self, *names: str) -> Self:
        """The listeners to load, by entry point name; the list replaces the former one."""
        return self._change("plugins", {"plugin_names": names})

    def validate(self) -> None:
        """Check what can only be checked together: spaces, module ids, names of classes.

        Raises:
            ConfigError: two settings do not fit, or a class cannot be imported by its name.
        """
        check_consistency(self)
        for name in ("learner_class", "learner_connector"):
            self.resolve(name)

    def resolve(self, name: str) -> Any:
        """The value of a setting, imported if it is kept as `"package.module:Name"`.

        Raises:
            ConfigError: it cannot be imported.
        """
        value = getattr(self, name)
        return resolve_name(value, where=name) if isinstance(value, str) else value

    def get_config_for_module(self, module_id: ModuleID) -> Self:
        """This config with the module's `algorithm_config_overrides_per_module`; itself if there are none."""
        overrides = self.algorithm_config_overrides_per_module.get(module_id)
        if not overrides:
            return self
        made: dict[ModuleID, Self] = self.__dict__.setdefault("_module_configs", {})
        if module_id not in made:
            settings = dict(overrides)
            if "optimizer" in settings:
                settings["optimizer"] = merged_optimizer(self.optimizer, settings["optimizer"])
            made[module_id] = self.changed(**settings)
        return made[module_id]


def _with(settings: dict[str, Any], **positional: Any) -> dict[str, Any]:
    return {name: value for name, value in positional.items() if value is not _UNSET} | settings
