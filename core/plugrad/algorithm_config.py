"""`AlgorithmConfig`: the settings of `plugrad.config`, and what can be built from them.

It stands above everything that it builds; the rooms below know a config as `plugrad.config.Config`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from plugrad.algorithm import Algorithm
from plugrad.config import Config
from plugrad.errors import ConfigError
from plugrad.group import LearnerGroup
from plugrad.hooks.registry import algorithm_of, get_algorithm
from plugrad.learner import Learner, build_learner
from plugrad.learner.build import with_spaces
from plugrad.types import ModuleID


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(Config):
    """Settings of a Learner, a LearnerGroup or an Algorithm; frozen, equal by value.

    Each fluent call returns a new config: `config = PPOConfig().environment("CartPole-v1").training(lr=0.1)`.
    An algorithm subclasses it with `@dataclass(frozen=True, kw_only=True)`; its new fields are arguments of
    `.training(...)`. `AlgorithmConfig.fields()` lists every setting with its help, default and rules.
    """

    @property
    def is_offline(self) -> bool:
        """Whether it learns from recorded data alone: nothing is sampled, and `env` is only for evaluation."""
        return False

    def get_default_learner_class(self) -> type[Learner]:
        """The Learner that is built when `learner_class` is None; algorithms override it."""
        return Learner

    def get_learner_class(self) -> type[Learner]:
        """`learner_class`, imported, or the algorithm's default."""
        chosen: type[Learner] | None = self.resolve("learner_class")
        return self.get_default_learner_class() if chosen is None else chosen

    def build_learner(
        self, env: Any = None, spaces: Mapping[ModuleID, tuple[Any, Any]] | None = None
    ) -> Learner:
        """A built Learner.

        Args:
            env: an environment, or what `.environment()` takes, to read the spaces from.
            spaces: `{module_id: (observation space, action space)}` instead.
        """
        self.validate()
        return build_learner(self, env=env, spaces=spaces)

    def build_learner_group(
        self,
        env: Any = None,
        spaces: Mapping[ModuleID, tuple[Any, Any]] | None = None,
        rl_module_spec: Any = None,
    ) -> LearnerGroup:
        """A LearnerGroup.

        Args:
            env: an environment, or what `.environment()` takes, to read the spaces from.
            spaces: `{module_id: (observation space, action space)}` instead.
            rl_module_spec: in place of the config's.

        Returns:
            The group; its learners are built.
        """
        self.validate()
        return LearnerGroup(config=with_spaces(self, env, spaces), module_spec=rl_module_spec)

    def build_algo(self) -> Algorithm:
        """An Algorithm: samples `env`, trains, evaluates, saves."""
        self.validate()
        return Algorithm(self)

    @classmethod
    def _algorithm_name(cls) -> str | None:
        algorithm = algorithm_of(cls)
        return algorithm.name if algorithm else None

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
