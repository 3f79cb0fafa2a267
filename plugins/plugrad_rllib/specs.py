"""The dataclasses that RLlib configured a Learner with before Ray 2.10; each converts to a config.

They stand above configs and learners, and are loaded only when they are asked for.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.config import field as setting
from plugrad.errors import ConfigError, did_you_mean
from plugrad.hooks.registry import algorithms_beside, get_algorithm
from plugrad.learner import Learner
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad.rl_module import MultiRLModule, RLModule
from plugrad.types import ModuleID
from plugrad_rllib.arguments import RENAMED, ConvertsToConfig
from plugrad_rllib.constants import TorchCompileWhatToCompile
from plugrad_rllib.warning import warn_older


@dataclass
class LearnerHyperparameters(ConvertsToConfig):
    """Settings of an update; a subclass's own fields become settings of the config that it converts to.

    Args:
        learning_rate: a float or `[[timestep, value], ...]`; None: the config's.
        grad_clip: None: gradients are not clipped.
        grad_clip_by: "value", "norm" or "global_norm"; None: the config's.
        seed: None: the config's.
        _per_module_overrides: `{module_id: LearnerHyperparameters, or a dict of the fields that differ}`.
    """

    learning_rate: float | list[list[float]] | None = None
    grad_clip: float | None = None
    grad_clip_by: str | None = None
    seed: int | None = None
    _per_module_overrides: dict[ModuleID, Any] | None = None
    _instead: ClassVar[str] = "training"

    def get_hps_for_module(self, module_id: ModuleID) -> Any:
        """Those of one module: its override, or these."""
        overrides = self._per_module_overrides or {}
        override: Any = overrides.get(module_id, self)
        if isinstance(override, Mapping):
            override = dataclasses.replace(self, **{"_per_module_overrides": None, **override})
            overrides[module_id] = override
        return override

    def over(self, config: Any) -> Any:
        """The config with these settings."""
        settings = dict(self._settings())
        config = _with_fields(config, settings)
        overrides = {
            module_id: _differences(settings, dict(self.get_hps_for_module(module_id)._settings()))
            for module_id in self._per_module_overrides or {}
        }
        return config.changed(**settings, algorithm_config_overrides_per_module=overrides)

    def _settings(self) -> Iterator[tuple[str, Any]]:
        """Names and values as a config has them; what is None is left to the config, except for `grad_clip`."""
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if each.name == "grad_clip" or (value is not None and not each.name.startswith("_")):
                yield RENAMED.get(each.name, each.name), value


def _differences(settings: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in others.items() if name not in settings or settings[name] != value}


def _with_fields(config: Any, settings: Mapping[str, Any]) -> Any:
    """The config; of a class derived from its own if there are settings that it has no field for."""
    unknown = [(name, Any, setting(value)) for name, value in settings.items() if name not in config.fields()]
    if not unknown:
        return config
    wider = dataclasses.make_dataclass(
        type(config).__name__, unknown, bases=(type(config),), frozen=True, kw_only=True
    )
    return wider(**{name: getattr(config, name) for name in config.fields()})


@dataclass
class FrameworkHyperparameters(ConvertsToConfig):
    """How an update is run.

    Args:
        eager_tracing: False: compile nothing.
        torch_compile: compile what `what_to_compile` says.
        what_to_compile: `TorchCompileWhatToCompile.FORWARD_TRAIN` or `COMPLETE_UPDATE`.
        torch_compile_cfg: not read: plugrad chooses how to compile.
    """

    eager_tracing: bool = True
    torch_compile: bool = False
    what_to_compile: str = TorchCompileWhatToCompile.FORWARD_TRAIN
    torch_compile_cfg: Any = None
    _instead: ClassVar[str] = "framework"

    def validate(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: `what_to_compile` is none of the two.
        """
        known = [each.value for each in TorchCompileWhatToCompile]
        if self.torch_compile and self.what_to_compile not in known:
            hint = did_you_mean(str(self.what_to_compile), known)
            raise ConfigError(f"what_to_compile={self.what_to_compile!r}: one of {', '.join(known)}.{hint}")

    def over(self, config: Any) -> Any:
        """The config with these settings."""
        self.validate()
        if self.torch_compile:
            return config.changed(compile=str(self.what_to_compile))
        return config.changed(compile="auto" if self.eager_tracing else "none")


@dataclass
class LearnerGroupScalingConfig(ConvertsToConfig):
    """Who runs the update: 0 workers are a learner in this process."""

    num_workers: int = 0
    num_cpus_per_worker: float = 1
    num_gpus_per_worker: float = 0
    local_gpu_idx: int = 0
    _instead: ClassVar[str] = "learners"

    def over(self, config: Any) -> Any:
        """The config with these settings."""
        return config.changed(
            num_learners=self.num_workers,
            num_cpus_per_learner=self.num_cpus_per_worker,
            num_gpus_per_learner=self.num_gpus_per_worker,
            local_gpu_idx=self.local_gpu_idx,
        )


@dataclass
class LearnerSpec:
    """A learner that is yet to be built. The config of the learner's algorithm has the settings that it leaves out.

    Args:
        learner_class: a Learner subclass; its `framework`, if it has one, is the backend.
        module_spec: what to build.
        module: finished modules instead.
        learner_group_scaling_config: who runs the update.
        learner_hyperparameters: settings of the update.
        framework_hyperparameters: how it is run.
    """

    learner_class: type[Learner]
    module_spec: RLModuleSpec | MultiRLModuleSpec | None = None
    module: RLModule | MultiRLModule | None = None
    learner_group_scaling_config: LearnerGroupScalingConfig | None = None
    learner_hyperparameters: LearnerHyperparameters | None = None
    framework_hyperparameters: FrameworkHyperparameters | None = None
    _parts: ClassVar = (
        "learner_group_scaling_config",
        "learner_hyperparameters",
        "framework_hyperparameters",
    )

    def __post_init__(self) -> None:
        warn_older(type(self).__name__, "AlgorithmConfig().build_learner()")

    def get_params_dict(self) -> dict[str, Any]:
        """Everything but the class."""
        names = ("module_spec", "module", *self._parts)
        return {name: getattr(self, name) for name in names}

    def to_config(self) -> Any:
        """The config of the class's algorithm, or a plain one, with these settings."""
        algorithm = next(algorithms_beside(self.learner_class), None)
        config = AlgorithmConfig() if algorithm is None else get_algorithm(algorithm)()
        config = config.changed(backend=self.learner_class.framework or config.backend)
        for part in self._parts:
            settings = getattr(self, part)
            config = config if settings is None else settings.to_config(config)
        return config

    def build(self) -> Learner:
        """The learner, which waits for its own `build()`."""
        return self.learner_class(config=self.to_config(), module_spec=self.module_spec, module=self.module)
