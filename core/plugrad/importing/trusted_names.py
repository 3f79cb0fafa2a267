"""Checks of the names of code in a file: only classes of one kind in installed packages may be called.

A run directory or a settings file may come from a stranger. What it names is called only if it is a class of the kind
that its setting wants, in an installed package or a module that is imported already, or an id that Gymnasium knows. Of
PettingZoo's own packages the functions that make such a class are called too. Kinds are the names of base classes, so
that no framework is imported.
"""

from inspect import isclass
from typing import Any, Final

import gymnasium as gym

from plugrad.importing.names import import_installed

ENVIRONMENT: Final = (
    "gymnasium.core.Env",
    "gymnasium.vector.vector_env.VectorEnv",
    "pettingzoo.utils.env.ParallelEnv",
    "pettingzoo.utils.env.AECEnv",
)
WRAPPER: Final = ("gymnasium.core.Wrapper",)
LEARNER: Final = ("plugrad.learner.learner.Learner",)
MODULE: Final = (
    "plugrad.rl_module.rl_module.RLModule",
    "torch.nn.modules.module.Module",
    "keras.src.models.model.Model",
    "keras.src.engine.training.Model",
    "flax.nnx.module.Module",
)
NOTHING: Final = ()
"""The kinds of settings that name a function: no function may be called."""

_MAKES_BY_NAME: Final = "shimmy"
"""A package whose environments make another environment that their arguments name."""

_WRITERS: Final = (
    "gymnasium.wrappers.rendering.RecordVideo",
    "stable_baselines3.common.monitor.Monitor",
)
"""Wrappers that write where their arguments say."""

_PETTINGZOO: Final = ("pettingzoo", "mpe2")
"""The packages whose modules have functions that make environments by PettingZoo's convention."""

_MAKERS: Final = ("env", "parallel_env")
"""The names of these functions: each makes the class `raw_env` of its module with its own arguments, and wraps it."""


def reason_against(name: str, kinds: tuple[str, ...]) -> str | None:
    """The reason why a name in a file may not be called, or None if it may. Nothing is called here.

    A module of an installed package is imported, to see the bases of its class.

    Args:
        name: `"package.module:Name"`; for an environment also a Gymnasium id, with or without a module.
        kinds: the class must have one of these bases: `ENVIRONMENT`, `WRAPPER`, `LEARNER`, `MODULE` or `NOTHING`.

    Returns:
        The reason, as the end of a sentence, or None.
    """
    module_name, colon, attribute = name.partition(":")
    if not colon:
        return _reason_against_id(name) if kinds == ENVIRONMENT else None
    if not kinds:
        return "it may be any function"
    try:
        module = import_installed(module_name)
    except Exception as error:
        return f"{module_name!r} cannot be imported ({type(error).__name__}: {error})"
    if module is None:
        return f"{module_name!r} is in no installed package"
    found = _class(module, attribute)
    if kinds == ENVIRONMENT and not hasattr(module, attribute.split(".")[0]) and attribute in gym.registry:
        return _reason_against_id(attribute)
    if kinds == ENVIRONMENT and _is_pettingzoo_maker(module_name, module, attribute):
        return None
    if found is None or not _is_kind(found, kinds):
        return f"it is no class derived from {' or '.join(dict.fromkeys(map(_short, kinds)))}"
    if kinds == WRAPPER and _is_kind(found, _WRITERS):
        return "it writes files where its arguments say"
    return _reason_against_package(found.__module__)


def _class(module: Any, attribute: str) -> type[Any] | None:
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
        if not isclass(found):
            return None
    return found  # type: ignore[no-any-return]


def _is_pettingzoo_maker(module_name: str, module: Any, attribute: str) -> bool:
    raw = getattr(module, "raw_env", None)
    in_package = module_name.split(".")[0] in _PETTINGZOO
    return in_package and attribute in _MAKERS and isclass(raw) and _is_kind(raw, ENVIRONMENT)


def _is_kind(cls: type[Any], kinds: tuple[str, ...]) -> bool:
    return any(f"{each.__module__}.{each.__qualname__}" in kinds for each in cls.__mro__)


def _reason_against_id(env_id: str) -> str | None:
    """As `reason_against`, for a Gymnasium id; Gymnasium refuses an id that is not registered."""
    specs = [
        spec for known, spec in gym.registry.items() if known == env_id or known.startswith(f"{env_id}-v")
    ]
    reasons = (_reason_against_package(str(spec.entry_point).partition(":")[0]) for spec in specs)
    return next((reason for reason in reasons if reason), None)


def _reason_against_package(module_name: str) -> str | None:
    if module_name.split(".")[0] != _MAKES_BY_NAME:
        return None
    return f"{_MAKES_BY_NAME} makes any environment that env_config names"


def _short(kind: str) -> str:
    package, _, name = kind.partition(".")
    return f"{package}.{name.rpartition('.')[2]}"
