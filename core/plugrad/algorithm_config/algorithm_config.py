"""`AlgorithmConfig`: the settings of `plugrad.config.Config`, with the methods that build from them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from plugrad.algorithm import Algorithm, AlgorithmBatch
from plugrad.config import RAY, Config
from plugrad.deprecation import rllib_plugin
from plugrad.errors import ConfigError
from plugrad.group import LearnerGroup
from plugrad.hooks.registry import algorithm_name, get_algorithm
from plugrad.learner import Learner, build_learner
from plugrad.learner.modules.build import with_spaces
from plugrad.types import ModuleID


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(Config):
    """Settings of a Learner, a LearnerGroup or an Algorithm, with the methods that build them.

    A config is frozen and is compared by value. Each fluent method (`environment`, `framework`, `training`, `learners`,
    `rl_module`, `multi_agent`, `env_runners`, `evaluation`, `debugging`, `plugins`) returns a new config:

        config = PPOConfig().environment("CartPole-v1").training(lr=3e-4).debugging(seed=0)
        algorithm = config.build_algo()

    The docstring of each method lists its settings. Every setting is also an attribute, such as `config.lr`.
    `to_dict`, `to_json` and `to_toml` write a config; `from_dict`, `from_json` and `from_toml` read it.

    An algorithm subclasses this with `@dataclass(frozen=True, kw_only=True)`. It declares its own settings with
    `plugrad.config.field`; they are set by `.training(...)`.
    """

    @classmethod
    def rllib_defaults(cls) -> Self:
        """A config with the defaults of RLlib 2.60 where they differ from plugrad's: docs/from-rllib.md lists them.

        Networks included. Who samples and learns stays plugrad's: `num_env_runners` is 0, where RLlib has 2 for PPO,
        IMPALA and APPO, and `num_learners` is 0, where RLlib has 1 for IMPALA and APPO.

        Raises:
            ConfigError: RLlib's defaults of this algorithm are not known here.
            PluginError: the plugin `plugrad_rllib`, which knows them, is not installed.
        """
        plugin = rllib_plugin(f"{cls.__name__}.rllib_defaults() has RLlib's values")
        return cls(**plugin.defaults_of(cls))

    @property
    def is_offline(self) -> bool:
        """Whether the algorithm learns only from recorded data. Then nothing is sampled; `env` is for evaluation."""
        return False

    def get_default_learner_class(self) -> type[Learner]:
        """The Learner class if `learner_class` is None; algorithms override this method."""
        return Learner

    def get_learner_class(self) -> type[Learner]:
        """The Learner class: `learner_class`, imported, or else the algorithm's default.

        Raises:
            ConfigError: it cannot be imported.
        """
        chosen: type[Learner] | None = self.resolve("learner_class")
        return self.get_default_learner_class() if chosen is None else chosen

    def build_learner(
        self, env: Any = None, spaces: Mapping[ModuleID, tuple[Any, Any]] | None = None
    ) -> Learner:
        """Build a Learner in this process, for your own batches or episodes.

        Args:
            env: an environment, or what `.environment(env)` takes, to read the spaces from. None: the config's.
            spaces: `{module_id: (observation space, action space)}` in place of an environment.

        Returns:
            A Learner whose `build()` was called.

        Raises:
            ConfigError: two settings do not fit, or the spaces are unknown.
            BackendNotFoundError: the backend, or its framework, is not installed.
        """
        self.validate()
        return build_learner(self, env=env, spaces=spaces)

    def build_learner_group(
        self,
        env: Any = None,
        spaces: Mapping[ModuleID, tuple[Any, Any]] | None = None,
        rl_module_spec: Any = None,
    ) -> LearnerGroup:
        """Build a LearnerGroup of `num_learners` learners, for your own batches or episodes.

        Args:
            env: an environment, or what `.environment(env)` takes, to read the spaces from. None: the config's.
            spaces: `{module_id: (observation space, action space)}` in place of an environment.
            rl_module_spec: an RLModuleSpec or MultiRLModuleSpec instead of the config's.

        Returns:
            The group; call its `shutdown()`, or use it in a `with` statement.

        Raises:
            ConfigError: two settings do not fit, or the spaces are unknown.
            BackendNotFoundError: the backend, or its framework, is not installed.
        """
        self.validate()
        return LearnerGroup(config=with_spaces(self, env, spaces), module_spec=rl_module_spec)

    def build_algo(self) -> Algorithm:
        """Build an Algorithm, which samples `env`, trains, evaluates and saves.

        Raises:
            ConfigError: two settings do not fit, or there is no environment.
            BackendNotFoundError: the backend, or its framework, is not installed.
        """
        self.validate()
        if self.launcher != RAY:
            raise ConfigError(
                f"launcher={self.launcher!r}: an Algorithm samples in one process. Sample in each process, with a seed "
                "of its own, and train with build_learner_group(): docs/many-learners.md shows it",
                field="launcher",
            )
        return Algorithm(self)

    def build_seeds(self, seeds: int | Iterable[int]) -> AlgorithmBatch:
        """Build algorithms that differ only in their seeds and whose updates run as one program.

        Args:
            seeds: the seeds; or how many, counted up from the config's seed, or from 0.

        Returns:
            The batch: `train()` runs one iteration of each of its `algorithms`.

        Raises:
            ConfigError: as in `build_algo`; or the backend or a setting does not allow many seeds in one program. The
                message says what to type.
            BackendNotFoundError: the backend, or its framework, is not installed.
        """
        if isinstance(seeds, int):
            first = 0 if self.seed is None else self.seed
            seeds = range(first, first + seeds)
        return AlgorithmBatch([self.changed(seed=seed) for seed in seeds])

    _algorithm_name = classmethod(algorithm_name)

    @classmethod
    def _class_for(cls, algorithm: str) -> type[Self]:
        if cls._algorithm_name() == algorithm:
            return cls
        named: type[Any] = get_algorithm(algorithm)
        if not issubclass(named, cls):
            raise ConfigError(
                f"this config is of algorithm {algorithm!r}, not of {cls.__name__}: use {named.__name__}"
            )
        return named
