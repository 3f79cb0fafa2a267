"""Environments by their names: Gymnasium ids, classes, functions, and `"package.module:Name"` of these."""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeAlias

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from plugrad.errors import ConfigError, PlugradError, did_you_mean
from plugrad.importing.names import import_named, in_main_by_value
from plugrad.importing.on_use import require_extra

EnvSource: TypeAlias = str | Callable[..., Any]
"""A Gymnasium id, `"package.module:Env-v0"`, `"package.module:Class"`, a class or a function."""

NAMESPACES = {"ALE": ("ale_py", "atari")}
"""Namespaces of ids whose package is imported when one is named: the package, and the extra that installs it."""


def make_named(env: EnvSource | None, env_config: dict[str, Any], make: Callable[..., Any]) -> Any:
    """Make an environment.

    Args:
        env: as in `plugrad.sampling.environments.make_env`.
        env_config: keyword arguments of the environment.
        make: makes one from a Gymnasium id.

    Returns:
        The environment.

    Raises:
        ConfigError: there is no such environment, or it does not accept `env_config`.
        Exception: what the environment's own code raised, with a note that names the environment.
    """
    creator = _creator(env, make)
    try:
        return creator(**env_config)
    except (gym.error.UnregisteredEnv, gym.error.DeprecatedEnv) as error:
        raise _unknown(str(env), error) from error
    except Exception as error:
        if isinstance(error, PlugradError):
            raise
        if not _is_refused(error, env_config):
            error.add_note(f"raised while environment {env_name(env)} was made")
            raise
        given = f" with env_config={env_config}" if env_config else ""
        raise ConfigError(
            f"cannot make the environment {env_name(env)}{given}: {error}{_extra_hint(str(error))}",
            env=env_name(env),
        ) from error


def _is_refused(error: Exception, env_config: Mapping[str, Any]) -> bool:
    """Whether an environment's constructor was refused, rather than that its own code raised an error."""
    if isinstance(error, gym.error.Error):
        return True
    words = str(error) if isinstance(error, TypeError) else ""
    if "argument" in words and any(repr(name) in words for name in env_config):
        return True
    if not isinstance(error, TypeError | ImportError):
        return False
    # Gymnasium raises the TypeError of a constructor anew: its context has the frames.
    return not any(_has_own_frames(each) for each in (error, error.__context__) if each is not None)


def _has_own_frames(error: BaseException) -> bool:
    """Whether others than plugrad, Gymnasium and Python took part in an error."""
    trace = error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if not module.startswith(("gymnasium.", "plugrad.", "importlib.", "functools")):
            return True
        trace = trace.tb_next
    return False


_EXTRA_OF_GYMNASIUM: Final = re.compile(r"gymnasium\[(box2d|mujoco)\]")
"""The extras of Gymnasium that plugrad has, too: they install without a compiler."""


def _extra_hint(words: str) -> str:
    found = _EXTRA_OF_GYMNASIUM.search(words)
    return f'. Here: pip install "plugrad[{found[1]}]"' if found else ""


def _creator(env: EnvSource | None, make: Callable[..., Any]) -> Callable[..., Any]:
    if isinstance(env, str):
        _import_namespace(env)
        found = import_attribute(env)
        return found if found is not None else lambda **kwargs: make(env, **kwargs)
    if callable(env):
        return env
    raise ConfigError(
        f"no environment to make: env={env!r}. Give a Gymnasium id, a class or 'package.module:Class': "
        "config.environment('CartPole-v1')",
        env=env,
    )


def import_attribute(env: str) -> Callable[..., Any] | None:
    """The class that `"package.module:Class"` names; None if `env` is an id, with or without a module."""
    module_name, colon, attribute = env.partition(":")
    if not colon:
        return None
    module = import_named(module_name, env, where="environment")
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if found is None and not _is_id(attribute):
        classes = [name for name, value in vars(module).items() if isinstance(value, type)]
        raise ConfigError(
            f"environment {env!r}: {module_name!r} has no {attribute!r} and registers no such id."
            + did_you_mean(attribute, classes),
            env=env,
        )
    return found  # type: ignore[no-any-return]


def _is_id(name: str) -> bool:
    # "Ant-v5" or "namespace/Ant" cannot be the name of a class; "Ant" without a version could be either.
    return not name.replace(".", "").isidentifier() or name in gym.registry


def _unknown(env: str, error: Exception) -> ConfigError:
    package, _, env_id = env.rpartition(":")
    # Gymnasium's own functions register what the user gives them.
    is_of_others = package in sys.modules and package != "gymnasium"
    registers = _functions_that_register(package) if is_of_others else []
    if is_of_others and (registers or not did_you_mean(env_id, gym.registry)):
        call = f" Here: call {registers[0]}() there." if registers else ""
        return ConfigError(
            f"no environment {env!r}: {package!r} was imported, and registers no id {env_id!r} when it is. If a "
            "function of it registers its ids, call that in a module of your own, and name this module: "
            f"'my_envs:{env_id}'.{call} ({error})",
            env=env,
        )
    hint = _namespace_hint(env_id) or _package_hint(env_id) or did_you_mean(env_id, gym.registry)
    hint = hint or " Is the package that registers it imported? 'package.module:Id-v0'"
    return ConfigError(f"no environment {env!r}.{hint} ({error})", env=env)


def _functions_that_register(package: str) -> list[str]:
    """Functions of a package and of its modules that were imported, such as `register_envs`."""
    modules = [name for name in sys.modules if name == package or name.startswith(f"{package}.")]
    return sorted(
        f"{name}.{each}"
        for name in modules
        for each, value in vars(sys.modules[name]).items()
        if each.startswith("register") and getattr(value, "__module__", None) == name
    )


def _import_namespace(env: str) -> None:
    """Import the package that registers ids such as `"ALE/Pong-v5"`."""
    namespace, slash, _ = env.partition("/")
    if slash and namespace in NAMESPACES and not _is_registered(namespace):
        package, extra = NAMESPACES[namespace]
        require_extra(package, extra, f"the environment {env!r}")
        import_module(package)


def _is_registered(namespace: str) -> bool:
    return any(known.startswith(f"{namespace}/") for known in gym.registry)


def _package_hint(env_id: str) -> str:
    """What to type for `"Pong-v5"` or `"PongNoFrameskip-v4"`, which a package registers that nobody imported."""
    before = {*gym.registry}
    for namespace, (package, _) in NAMESPACES.items():
        if find_spec(package) is not None:
            import_module(package)
            if env_id in gym.registry and env_id not in before:
                return f" Type '{package}:{env_id}'."
            if f"{namespace}/{env_id}" in gym.registry:
                return f" Type '{namespace}/{env_id}'."
    return ""


def _namespace_hint(env_id: str) -> str:
    """What to type for `"minigrid/Empty-v0"` while nothing has registered an id that begins with `minigrid/`."""
    namespace, slash, _ = env_id.partition("/")
    if not slash or _is_registered(namespace):
        return ""
    return f" No imported package registers ids {namespace}/...: name the one that does, as in 'package:{env_id}'."


def env_name(env: object) -> str:
    """The name of an environment for messages: `'CartPole-v1'`, or the name of a class."""
    if isinstance(env, partial) and not hasattr(env, "__qualname__"):
        return env_name(env.func)
    return repr(env) if isinstance(env, str) else getattr(env, "__qualname__", repr(env))


def reward_threshold(env: EnvSource | None) -> float | None:
    """The mean return at which an environment counts as solved, by its registration; None if that has none.

    Args:
        env: an id such as `"CartPole-v1"`, `"package.module:Env-v0"` or, of the newest version, `"CartPole"`; classes
            and functions are not registered.
    """
    spec = registration(env)
    return None if spec is None else spec.reward_threshold


def registration(env: EnvSource | None) -> EnvSpec | None:
    """The registration of an id, of its newest version if it names none; None for classes and functions.

    Args:
        env: as in `make_named`.
    """
    if not isinstance(env, str) or import_attribute(env) is not None:
        return None
    env_id = env.rpartition(":")[2]
    versions = {spec.version or 0: spec for spec in gym.registry.values() if env_id in _names_of(spec)}
    return versions[max(versions)] if versions else None


def spec_to_send(env: object) -> EnvSpec | None:
    """The registration of an id, for a process in which no script registers it; see `register_sent`.

    Returns:
        The registration; None if there is none yet, or `env` is no id.
    """
    if not isinstance(env, str):
        return None
    package, _, env_id = env.rpartition(":")
    spec = gym.registry.get(env_id) if package in ("", "__main__") else None  # others register where imported
    if spec is None:
        return None
    return replace(spec, entry_point=in_main_by_value(spec.entry_point, where=f"environment {env!r}"))


def register_sent(spec: EnvSpec | None) -> None:
    """Register what `spec_to_send` returned, unless the id is known here."""
    if spec is not None:
        gym.registry.setdefault(spec.id, spec)


def _names_of(spec: EnvSpec) -> tuple[str, str]:
    return spec.id, spec.id.removesuffix(f"-v{spec.version}")
