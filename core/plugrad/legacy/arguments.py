"""Older arguments: `hps=` for `config=`, `num_iters=` for `num_epochs=`, `reduce_fn=`; in calls and in overrides.

Knows what they mean now, no learner.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from plugrad.legacy.instead import refuse
from plugrad.legacy.warning import warn_older

P = ParamSpec("P")
R = TypeVar("R")

RENAMED = {"learning_rate": "lr", "lr_schedule": "lr"}
"""Fields of `LearnerHyperparameters` that a config names otherwise."""
RENAMED_ARGUMENTS = {
    "compute_loss_for_module": ("config", "hps"),
    "configure_optimizers_for_module": ("config", "hps"),
    "postprocess_gradients_for_module": ("config", "hps"),
    "additional_update_for_module": ("config", "hps"),
    "update": ("num_epochs", "num_iters"),
}
"""`{method: (argument, its older name)}`."""


class ConvertsToConfig:
    """What `LearnerHyperparameters` is, for rooms that cannot know it: its `to_config` gives a config."""

    def to_config(self, config: Any = None) -> Any:
        """The config with these settings over it."""
        raise NotImplementedError


class Hyperparameters:
    """A config as code for `LearnerHyperparameters` reads it: `hps.learning_rate`, `hps.grad_clip`, ...

    Args:
        config: a config, or a module's config with its coefficients as tensors.
    """

    def __init__(self, config: Any) -> None:
        self.config = config

    def __getattr__(self, name: str) -> Any:
        if name == "config":  # not yet there: being unpickled or copied
            raise AttributeError(name)
        return getattr(self.config, RENAMED.get(name, name))

    def get_hps_for_module(self, module_id: str) -> "Hyperparameters":
        """Those of one module."""
        return Hyperparameters(self.config.get_config_for_module(module_id))


def takes_hps(method: Callable[P, R]) -> Callable[P, R]:
    """Let a learner's method be called with `hps=` in place of `config=`."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if "hps" in kwargs:
            if not isinstance(kwargs["hps"], Hyperparameters):
                warn_older("hps=", "config=")
            kwargs["config"] = _config_of(args[0], kwargs.pop("hps"))
        return method(*[_config_of(args[0], each) for each in args], **kwargs)

    vars(call)["takes_hps"] = True
    return call


def _config_of(learner: Any, given: Any) -> Any:
    if isinstance(given, Hyperparameters):
        return given.config
    return given.to_config(learner.config) if isinstance(given, ConvertsToConfig) else given


def takes_older_update_arguments(update: Callable[P, R]) -> Callable[P, R]:
    """Let `update` take `num_iters=` and `reduce_fn=`, and name the way for what plugrad does not have."""

    @wraps(update)
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        refuse(kwargs, call="update()")
        if "num_iters" in kwargs:
            warn_older("num_iters=", "num_epochs=")
            kwargs["num_epochs"] = kwargs.pop("num_iters")
        if "reduce_fn" not in kwargs:
            return update(*args, **kwargs)
        warn_older("reduce_fn=", "the results as they are: means over the minibatches")
        reduce_fn: Any = kwargs.pop("reduce_fn")
        learner: Any = args[0]
        results = learner._results_to_reduce(lambda: update(*args, **kwargs))
        return results if reduce_fn is None else reduce_fn(results)

    return call


def translate_overrides(cls: type[Any]) -> None:
    """Let overrides that still have the older argument be called with the new one, and warn of them."""
    for name, (new, old) in RENAMED_ARGUMENTS.items():
        override = getattr(cls, name)
        names = signature(override).parameters
        if old in names and new not in names:
            warn_older(f"{cls.__name__}.{name}({old}), an override's argument,", new, stacklevel=4)
            setattr(cls, name, _translated(cls, name, override))


def _translated(cls: type[Any], name: str, override: Callable[..., Any]) -> Callable[..., Any]:
    new, old = RENAMED_ARGUMENTS[name]
    if old == "hps":
        _teach_hps(cls.__mro__[1:], name)  # for its super()
    base = getattr(super(cls, cls), name)

    @wraps(base)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        named = signature(base).bind(self, *args, **kwargs).arguments
        named.update(named.pop("kw", {}))
        del named["self"]
        value = named.pop(new, None)
        if old == "hps":
            module_config = self.config.get_config_for_module(named["module_id"])
            named["hps"] = Hyperparameters(module_config if value is None else value)
        elif value is not None:
            named[old] = value
        return override(self, **accepted(override, named))

    return takes_hps(call) if old == "hps" else call


def _teach_hps(classes: Iterable[type[Any]], name: str) -> None:
    for cls in classes:
        method = vars(cls).get(name)
        if method is not None and not hasattr(method, "takes_hps"):
            setattr(cls, name, takes_hps(method))


def accepted(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Those of the arguments that a function can take; one that is set and cannot be taken stays, to be refused."""
    parameters = signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters or value is not None}
