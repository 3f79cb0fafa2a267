"""Env runners by the names that RLlib's have: one, for callbacks, and the group that an Algorithm has of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym

from plugrad.algorithm import Algorithm
from plugrad.errors import ConfigError
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.sampling.base_env_runner import BaseEnvRunner
from plugrad.sampling.multi_agent.env_runner import MultiAgentEnvRunner
from plugrad_rllib.metrics_logger import MetricsLogger


class _VectorEnv(gym.vector.VectorEnv[Any, Any, Any]):
    """The environments of an env runner where RLlib gives Gymnasium's vector environment: to look at, not to step."""

    def __init__(self, envs: Any) -> None:
        self.envs, self.num_envs = list(envs), len(envs)


class VectorMultiAgentEnv:
    """The environments with many agents of an env runner, for callbacks.

    Args:
        envs: the environments.

    Attributes:
        envs: the environments.
        num_envs: how many there are.
    """

    def __init__(self, envs: Sequence[Any]) -> None:
        self.envs, self.num_envs = list(envs), len(envs)

    @property
    def unwrapped(self) -> "VectorMultiAgentEnv":
        """It has no wrapper."""
        return self


class RLlibEnvRunner:
    """An env runner by the names that RLlib's has. Its other attributes are plugrad's.

    Args:
        runner: the env runner.
        learner: whose modules act.

    Attributes:
        worker_index: 0 in the Algorithm's process, else 1, 2, ...
        env: the environments, in `env.envs`.
        module: the module that acts; with many agents all modules.
        metrics: logs metrics.
    """

    def __init__(self, runner: BaseEnvRunner[Any], learner: LearnerProtocol) -> None:
        self._runner = runner
        is_multi_agent = isinstance(runner, MultiAgentEnvRunner)
        self.worker_index = 0 if runner.rank is None else runner.rank + 1
        self.env: Any = VectorMultiAgentEnv(runner.envs) if is_multi_agent else _VectorEnv(runner.envs)
        self.module_id = None if is_multi_agent else runner._module_id  # type: ignore[attr-defined]
        self.module = learner.module if self.module_id is None else learner.module[self.module_id]
        self.metrics = MetricsLogger(runner.logged)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._runner, name)


class RLlibEnvRunnerGroup:
    """`algorithm.env_runner_group` of RLlib, over the env runner of this process.

    Args:
        algorithm: the Algorithm that samples with it.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm

    def foreach_env_runner(self, func: Callable[[Any], Any], **others: Any) -> list[Any]:
        """Call a function with the env runner, which may change the settings of its environments and make them anew:

            def harder(env_runner):
                env_runner.config.environment(env_config={"level": 2})
                env_runner.make_env()

        Args:
            func: takes the env runner; see `RLlibEnvRunner`.
            **others: RLlib's arguments of remote calls, such as `local_env_runner` and `timeout_seconds`, which have
                no effect.

        Returns:
            What the function returned, in a list.

        Raises:
            ConfigError: env runners are in processes of their own, or the config `is_offline`.
        """
        runner = self._algorithm.env_runner
        if not isinstance(runner, BaseEnvRunner):
            raise ConfigError(
                f"foreach_env_runner: {type(self._algorithm.config).__name__} has num_env_runners="
                f"{self._algorithm.config.num_env_runners}, and functions run in this process alone: set "
                "env_runners(num_env_runners=0), or call methods of the environments: "
                "algorithm.env_runners.call(name, ...)"
            )
        return [func(ChangingEnvRunner(runner, self._algorithm.learner_group.acting_learner.get_synced()))]

    def num_remote_workers(self) -> int:
        """Env runners in other processes, as RLlib counts them."""
        return int(self._algorithm.config.num_env_runners)


class ChangingEnvRunner(RLlibEnvRunner):
    """An env runner of an Algorithm, whose environments a program changes.

    Args:
        runner: the env runner.
        learner: whose modules act.

    Attributes:
        config: its settings, see `EnvSettings`.
    """

    def __init__(self, runner: BaseEnvRunner[Any], learner: LearnerProtocol) -> None:
        super().__init__(runner, learner)
        self.config = EnvSettings(runner.config)

    def make_env(self) -> None:
        """Make the environments anew, with the settings of `config`; new episodes begin."""
        runner: Any = self._runner
        runner.config = runner.config.changed(env_config=self.config.keywords)
        runner.make_anew()


class EnvSettings:
    """The settings of an env runner, of which those of environments can be changed in place, as RLlib's.

    Args:
        config: of the env runner.

    Attributes:
        env_config: settings of the environments; `make_env` uses what is in it. Of an environment that takes one
            dict of them, as RLlib gives it, it is that dict.
    """

    def __init__(self, config: Any) -> None:
        self._config = config
        whole: Mapping[str, Any] = config.env_config
        inner = [name for name, each in whole.items() if isinstance(each, Mapping)]
        self._parameter = inner[0] if inner and len(whole) == 1 else None
        self.env_config: dict[str, Any] = dict(whole if self._parameter is None else whole[self._parameter])

    @property
    def keywords(self) -> dict[str, Any]:
        """What the environments are made with."""
        return self.env_config if self._parameter is None else {self._parameter: self.env_config}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._config, name)

    def environment(self, *, env_config: Mapping[str, Any]) -> "EnvSettings":
        """Change settings of the environments; others stay.

        Args:
            env_config: the new ones.

        Returns:
            This object.
        """
        self.env_config |= env_config
        return self
