"""Calls of methods, and changes of attributes, of environments that are sampled: the levels of a curriculum."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from plugrad.errors import ConfigError, did_you_mean


class EnvCall(NamedTuple):
    """What is done to each environment.

    Args:
        kind: "call", "get_attr" or "set_attr".
        name: of the method or attribute.
        arguments: of the method; the value of an attribute that is set.
        keywords: of the method.
    """

    kind: str
    name: str
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = {}

    def run(self, env: Any, where: str) -> Any:
        """Do it to one environment: to the outermost wrapper that has the method or attribute, or to the environment.

        Args:
            env: with its wrappers.
            where: names it, for errors.

        Returns:
            What the method returned, or the attribute; None where one is set.

        Raises:
            ConfigError: there is no such method or attribute.
            Exception: what the method raised.
        """
        owner = _owner(env, self.name, where)
        if self.kind == "set_attr":
            setattr(owner, self.name, *self.arguments)
            return None
        found = getattr(owner, self.name)
        if self.kind == "get_attr":
            return found
        if not callable(found):
            raise ConfigError(
                f"environment {where}: {self.name!r} is a {type(found).__name__} and no method: set_attr changes it"
            )
        return found(*self.arguments, **self.keywords)


def _owner(env: Any, name: str, where: str) -> Any:
    """The outermost of an environment's wrappers that has the attribute itself, or the environment."""
    each = env
    while name not in getattr(each, "__dict__", ()) and not hasattr(type(each), name):
        inner = getattr(each, "env", None)
        if inner is None:
            if hasattr(each, name):  # it answers by __getattr__
                return each
            known = [known for known in dir(each) if not known.startswith("_")]
            raise ConfigError(
                f"environment {where} has no method or attribute {name!r}, nor has a wrapper of it."
                f"{did_you_mean(name, known)}",
                env=where,
            )
        each = inner
    return each


class CallsEnvs(ABC):
    """Calls the environments of env runners, wherever they step."""

    def call(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of every environment, such as one that sets the level of a curriculum.

        ```python
        algorithm.env_runners.call("set_level", 3)
        ```

        It is called between two samples. Running episodes go on: `algorithm.begin_new_episodes()` ends them. An
        environment of a replaced env runner gets the last call of each name again. A checkpoint has no calls: a resumed
        run makes them again.

        Args:
            name: of a method of the environment or of a wrapper; the outermost that has it is taken.
            *args: its arguments; for environments in other processes they, and the result, are pickled.
            **kwargs: likewise.

        Returns:
            The results: one for each environment, in the order of env runners; one for all environments of an env
            runner with `vectorization_mode="vector_entry_point"`.

        Raises:
            ConfigError: there is no such method, or the environments are envpool's.
            Exception: what the method raised.
        """
        return self.call_envs(EnvCall("call", name, args, kwargs))

    def get_attr(self, name: str) -> list[Any]:
        """An attribute of every environment.

        Args:
            name: of an attribute of the environment or of a wrapper; the outermost that has it is taken.

        Returns:
            The values, as `call` returns results.

        Raises:
            ConfigError: there is no such attribute, or the environments are envpool's.
        """
        return self.call_envs(EnvCall("get_attr", name))

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute of every environment.

        Args:
            name: of an attribute that the environment or a wrapper has; the outermost that has it is changed.
            value: the new value; see `call` for other processes, replaced env runners and checkpoints.

        Raises:
            ConfigError: there is no such attribute, or the environments are envpool's.
        """
        self.call_envs(EnvCall("set_attr", name, (value,)))

    @abstractmethod
    def call_envs(self, call: EnvCall) -> list[Any]:
        """Do something to all environments.

        Args:
            call: what; see `call`.

        Returns:
            What each returned.

        Raises:
            Exception: see `call`.
        """

    @abstractmethod
    def make_anew(self) -> None:
        """Close all environments and make others in their places, such as after one that hung or died.

        ```python
        try:
            algorithm.train()
        except EnvWorkerError:
            algorithm.env_runners.make_anew()  # and go on: weights, statistics and counters stay
        ```

        New episodes begin, with seeds not used before. The last call of each name is made again.

        Raises:
            Exception: what making an environment raised. It may be called again.
        """
