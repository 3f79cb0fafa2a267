"""`RLlibCallback`: a class of RLlib's callbacks is a listener here, whose methods its hooks call.

    config.plugins(MyCallback)
    config.plugins(callbacks(on_train_result=f, on_episode_end=g))

What a callback logs is in the results: of an env runner as `env_runners/<name>`, of the Algorithm as `<name>`.
"""

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from plugrad.deprecation.user_warnings import warn_at_users_line
from plugrad.errors import PluginError, did_you_mean
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookimpl
from plugrad.results import Results
from plugrad.sampling.logged_metrics import add_logged
from plugrad_rllib.env_runners import RLlibEnvRunner
from plugrad_rllib.episodes import RLlibEpisode
from plugrad_rllib.metrics_logger import MetricsLogger
from plugrad_rllib.running_algorithm import RLlibAlgorithm

NOT_CALLED: Mapping[str, str] = MappingProxyType(
    {
        "on_checkpoint_loaded": "write a listener with the hook checkpoint_restored",
        "on_create_policy": "write a listener with the hook module_added",
        "on_env_runners_recreated": "a replaced env runner begins by itself, and calls on_environment_created",
        "on_evaluate_offline_end": "evaluation plays in an environment: on_evaluate_end",
        "on_evaluate_offline_start": "evaluation plays in an environment: on_evaluate_start",
        "on_learn_on_batch": "write a listener with the hook update_begun, or override a method of a Learner",
        "on_offline_eval_runners_recreated": "there are no such runners",
        "on_postprocess_trajectory": "write a learner connector: learners(learner_connector=...)",
        "on_sub_environment_created": "on_environment_created",
        "on_workers_recreated": "a replaced env runner begins by itself, and calls on_environment_created",
    }
)
"""RLlib's callbacks that nothing calls here, and what to write."""


class RLlibCallback:
    """RLlib's callbacks; override those that you want. They take keyword arguments, and should have `**kwargs`.

    Where an env runner calls one, it does so in its own process. `on_episode_created` is called together with
    `on_episode_start`, when the environment was reset.
    """

    def on_algorithm_init(self, *, algorithm: Any, metrics_logger: MetricsLogger, **kwargs: Any) -> None:
        """Called when an Algorithm is built."""

    def on_train_result(
        self, *, algorithm: Any, metrics_logger: MetricsLogger, result: dict[str, Any], **kwargs: Any
    ) -> None:
        """Called at the end of `Algorithm.train()`; `result` may be changed."""

    def on_evaluate_start(self, *, algorithm: Any, metrics_logger: MetricsLogger, **kwargs: Any) -> None:
        """Called at the beginning of `Algorithm.evaluate()`."""

    def on_evaluate_end(
        self,
        *,
        algorithm: Any,
        metrics_logger: MetricsLogger,
        evaluation_metrics: dict[str, Any],
        **kwargs: Any,
    ) -> None:
        """Called at the end of `Algorithm.evaluate()`; `evaluation_metrics` may be changed."""

    def on_environment_created(
        self, *, env_runner: Any, metrics_logger: MetricsLogger, env: Any, env_context: Any, **kwargs: Any
    ) -> None:
        """Called when an env runner has its environments."""

    def on_episode_created(
        self,
        *,
        episode: Any,
        env_runner: Any,
        metrics_logger: MetricsLogger,
        env: Any,
        env_index: int,
        rl_module: Any,
        **kwargs: Any,
    ) -> None:
        """Called when an episode begins."""

    def on_episode_start(
        self,
        *,
        episode: Any,
        env_runner: Any,
        metrics_logger: MetricsLogger,
        env: Any,
        env_index: int,
        rl_module: Any,
        **kwargs: Any,
    ) -> None:
        """Called when an environment was reset."""

    def on_episode_step(
        self,
        *,
        episode: Any,
        env_runner: Any,
        metrics_logger: MetricsLogger,
        env: Any,
        env_index: int,
        rl_module: Any,
        **kwargs: Any,
    ) -> None:
        """Called after each step of an environment."""

    def on_episode_end(
        self,
        *,
        episode: Any,
        prev_episode_chunks: Any,
        env_runner: Any,
        metrics_logger: MetricsLogger,
        env: Any,
        env_index: int,
        rl_module: Any,
        **kwargs: Any,
    ) -> None:
        """Called after the last step; `episode` has all steps, so `prev_episode_chunks` is empty."""

    def on_sample_end(
        self, *, env_runner: Any, metrics_logger: MetricsLogger, samples: Any, **kwargs: Any
    ) -> None:
        """Called at the end of a sample."""

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        for hook, (names, function) in _HOOKS.items():
            if any(getattr(cls, name) is not getattr(RLlibCallback, name) for name in names):
                setattr(cls, hook, function)
        for name in NOT_CALLED:
            if name in vars(cls):
                warn_at_users_line(f"{cls.__name__}.{name}: nothing calls it here: {NOT_CALLED[name]}")

    @property
    def _logger(self) -> MetricsLogger:
        """The Algorithm's; a subclass need not call `super().__init__()`."""
        logger: MetricsLogger = vars(self).setdefault("_metrics_logger", MetricsLogger())
        return logger


DefaultCallbacks = RLlibCallback


def _of_runner(learner: LearnerProtocol, env_runner: Any) -> dict[str, Any]:
    """What every callback of an env runner gets."""
    runner = RLlibEnvRunner(env_runner, learner)
    return {
        "env_runner": runner,
        "metrics_logger": runner.metrics,
        "env": runner.env,
        "rl_module": runner.module,
        "worker": None,
        "base_env": None,
        "policies": None,
    }


def _of_episode(learner: LearnerProtocol, env_runner: Any, episode: Any) -> dict[str, Any]:
    found = _of_runner(learner, env_runner)
    module_id = found["env_runner"].module_id
    seen = RLlibEpisode(episode) if module_id is None else RLlibEpisode(episode, module_id)
    return {**found, "episode": seen, "env_index": episode.env_index}


@hookimpl
def _algorithm_built(self: Any, algorithm: Any) -> None:
    self.on_algorithm_init(algorithm=RLlibAlgorithm(algorithm, self._logger), metrics_logger=self._logger)


@hookimpl
def _iteration_ended(self: Any, algorithm: Any, results: Any) -> None:
    self.on_train_result(
        algorithm=RLlibAlgorithm(algorithm, self._logger), metrics_logger=self._logger, result=results
    )
    add_logged(results, self._logger.logged.take())


@hookimpl
def _evaluation_begun(self: Any, algorithm: Any) -> None:
    self.on_evaluate_start(algorithm=RLlibAlgorithm(algorithm, self._logger), metrics_logger=self._logger)


@hookimpl
def _evaluation_ended(self: Any, algorithm: Any, results: Any) -> None:
    """RLlib has the returns below "env_runners"; what a callback adds is a result."""
    seen = Results({**results, **{f"{_RUNNERS}{name}": value for name, value in results.items()}})
    before = dict(seen)
    self.on_evaluate_end(
        algorithm=RLlibAlgorithm(algorithm, self._logger),
        metrics_logger=self._logger,
        evaluation_metrics=seen,
    )
    for name, value in seen.items():
        if name not in before or value is not before[name]:
            results[name.removeprefix(_RUNNERS)] = value


@hookimpl
def _env_runner_built(self: Any, learner: LearnerProtocol, env_runner: Any) -> None:
    context = dict(env_runner.config.env_config)
    self.on_environment_created(**_of_runner(learner, env_runner), env_context=context)


@hookimpl
def _episode_started(self: Any, learner: LearnerProtocol, env_runner: Any, episode: Any) -> None:
    _begun(self, _of_episode(learner, env_runner, episode), episode)


def _begun(self: Any, arguments: dict[str, Any], episode: Any) -> dict[str, Any]:
    """The arguments, after callbacks were told that the episode begins: in a resumed run it began in another one."""
    told: set[int] = vars(episode).setdefault("_told_callbacks", set())
    if id(self) not in told:
        told.add(id(self))
        self.on_episode_created(**arguments)
        self.on_episode_start(**arguments)
    return arguments


@hookimpl
def _episode_stepped(self: Any, learner: LearnerProtocol, env_runner: Any, episode: Any) -> None:
    self.on_episode_step(**_begun(self, _of_episode(learner, env_runner, episode), episode))


@hookimpl
def _episode_ended(self: Any, learner: LearnerProtocol, env_runner: Any, episode: Any) -> None:
    arguments = _begun(self, _of_episode(learner, env_runner, episode), episode)
    self.on_episode_end(**arguments, prev_episode_chunks=[])


@hookimpl
def _sample_ended(self: Any, learner: LearnerProtocol, env_runner: Any, episodes: Any) -> None:
    self.on_sample_end(**_of_runner(learner, env_runner), samples=episodes)


_RUNNERS = "env_runners/"
_OF_ALGORITHMS = ("on_algorithm_init", "on_train_result", "on_evaluate_start", "on_evaluate_end")
_HOOKS: Mapping[str, tuple[tuple[str, ...], Callable[..., None]]] = {
    "algorithm_built": (("on_algorithm_init",), _algorithm_built),
    "iteration_ended": (_OF_ALGORITHMS, _iteration_ended),  # which has what each of them logs
    "evaluation_begun": (("on_evaluate_start",), _evaluation_begun),
    "evaluation_ended": (("on_evaluate_end",), _evaluation_ended),
    "env_runner_built": (("on_environment_created",), _env_runner_built),
    "episode_started": (("on_episode_created", "on_episode_start"), _episode_started),
    "episode_stepped": (("on_episode_step",), _episode_stepped),
    "episode_ended": (("on_episode_end",), _episode_ended),
    "sample_ended": (("on_sample_end",), _sample_ended),
}
"""`{hook: (the callbacks for which it is needed, what it does)}`: a class listens to what it overrides, and no more."""
setattr(RLlibCallback, "algorithm_built", _algorithm_built)  # noqa: B010  # a listener has some hook
CALLBACKS = tuple(dict.fromkeys(name for names, _ in _HOOKS.values() for name in names))
"""The callbacks that are called."""


def callbacks(*classes: Any, **functions: Any) -> type[RLlibCallback]:
    """A callback class of others, and of functions: what RLlib's `config.callbacks(...)` takes.

    The class gets a name in the module that calls this, so that a checkpoint can name it.

    Args:
        *classes: callback classes, functions that make callbacks without arguments, or lists of them.
        **functions: a function, or a list of functions, for each callback: `on_train_result=f`.

    Returns:
        A class for `config.plugins(...)`, which makes one of each and calls them in this order.

    Raises:
        PluginError: there is no such callback.
    """
    made = [one for each in classes for one in (each if isinstance(each, list | tuple) else [each])]
    for name in functions:
        if name not in CALLBACKS:
            instead = NOT_CALLED.get(name)
            hint = f" Here: {instead}." if instead else did_you_mean(name, CALLBACKS)
            raise PluginError(f"callbacks({name}=...): nothing calls it.{hint}")
    given = {
        name: list(each) if isinstance(each, list | tuple) else [each] for name, each in functions.items()
    }
    methods: dict[str, Any] = {"__init__": _maker(made)}
    for name in CALLBACKS:
        is_in_class = any(
            not isinstance(each, type) or getattr(each, name) is not getattr(RLlibCallback, name)
            for each in made
        )
        if is_in_class or name in given:
            methods[name] = _caller(name, given.get(name, []))
    module = sys._getframe(1).f_globals
    number = sum(name.startswith("Callbacks_") for name in module) + 1
    name = f"Callbacks_{number}"
    cls: Any = type(
        name, (RLlibCallback,), {**methods, "__module__": module["__name__"], "__qualname__": name}
    )
    module[name] = cls
    found: type[RLlibCallback] = cls
    return found


def _maker(made: list[Any]) -> Callable[[Any], None]:
    def __init__(self: Any) -> None:
        self.parts = [each() for each in made]

    return __init__


def _caller(name: str, functions: list[Callable[..., None]]) -> Callable[..., None]:
    def call(self: Any, **arguments: Any) -> None:
        for each in [*(getattr(part, name) for part in self.parts), *functions]:
            each(**arguments)

    return call
