"""Older arguments: `hps=` for `config=`, `num_iters=` for `num_epochs=`, `reduce_fn=`; in calls and in overrides."""

from collections.abc import Callable, Mapping
from functools import partial, wraps
from inspect import signature
from typing import Any, ClassVar

from plugrad.learner import Learner
from plugrad_rllib.minibatches import results_of_minibatches
from plugrad_rllib.warning import warn_older

RENAMED = {"learning_rate": "lr", "lr_schedule": "lr"}
"""Fields of `LearnerHyperparameters` that a config names otherwise."""
TAKES_HPS = ("compute_loss_for_module", "configure_optimizers_for_module", "postprocess_gradients_for_module")
"""Methods of a Learner whose `config` was once `hps`."""
RENAMED_ARGUMENTS = {
    **dict.fromkeys((*TAKES_HPS, "additional_update_for_module"), ("config", "hps")),
    "update": ("num_epochs", "num_iters"),
}
"""`{method: (argument, its older name)}`."""


class ConvertsToConfig:
    """Base of `LearnerHyperparameters` and its siblings, which are loaded only when they are asked for."""

    _instead: ClassVar[str]
    """The method of `AlgorithmConfig` that has these settings."""

    def __post_init__(self) -> None:
        warn_older(type(self).__name__, f"AlgorithmConfig().{self._instead}(...)")

    def to_config(self, config: Any = None) -> Any:
        """A config with these settings over those of `config`; default: over `AlgorithmConfig()`."""
        if config is None:
            from plugrad.algorithm_config import (
                AlgorithmConfig,  # a higher layer than the learner's, which loads this file
            )

            config = AlgorithmConfig()
        return self.over(config)

    def over(self, config: Any) -> Any:
        """The config with these settings."""
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


# --- calls ----------------------------------------------------------------------------------------------------------


def takes_hps(method: Callable[..., Any]) -> Callable[..., Any]:
    """A learner's method that can be called with `hps=` in place of `config=`."""
    if "takes_hps" in vars(method):
        return method

    @wraps(method)
    def call(learner: Learner, *args: Any, **kwargs: Any) -> Any:
        given = [_config_of(learner, each) for each in args]
        return method(learner, *given, **with_config(learner, kwargs))

    vars(call)["takes_hps"] = True
    return call


def with_config(learner: Learner, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a learner's method with `config=` in place of `hps=`."""
    if "hps" not in arguments:
        return arguments
    hps = arguments["hps"]
    if not isinstance(hps, Hyperparameters):
        warn_older("hps=", "config=")
    others = {name: value for name, value in arguments.items() if name != "hps"}
    return {**others, "config": _config_of(learner, hps)}


def _config_of(learner: Learner, given: Any) -> Any:
    if isinstance(given, Hyperparameters):
        return given.config
    return given.to_config(learner.config) if isinstance(given, ConvertsToConfig) else given


def call_update(
    update: Callable[..., Any], owner: Any, older: Mapping[str, Any], settings: Mapping[str, Any]
) -> Any:
    """Call `update` with `num_iters=` or `reduce_fn=`, which gets one result a minibatch, of a group one a learner.

    Args:
        update: the method of Learner or LearnerGroup.
        owner: a Learner or a LearnerGroup.
        older: these arguments.
        settings: all others.
    """
    call = partial(update, owner, **settings)
    if "num_iters" in older:
        warn_older("num_iters=", "num_epochs=")
        call = partial(call, num_epochs=older["num_iters"])
    if "reduce_fn" not in older:
        return call()
    warn_older("reduce_fn=", "the results as they are: means over the minibatches")
    results = results_of_minibatches(owner, call) if isinstance(owner, Learner) else call()
    return results if older["reduce_fn"] is None else older["reduce_fn"](results)


# --- adapter of subclasses ------------------------------------------------------------------------------------------


def translate_overrides(cls: type[Any]) -> None:
    """Let overrides that still have the older argument be called with the new one, and warn of them."""
    for name, (new, old) in RENAMED_ARGUMENTS.items():
        override = getattr(cls, name)
        names = signature(override).parameters
        if old in names and new not in names:
            warn_older(f"{cls.__name__}.{name}({old}), an override's argument,", new)
            setattr(cls, name, _translated(cls, name, override))


def _translated(cls: type[Any], name: str, override: Callable[..., Any]) -> Callable[..., Any]:
    new, old = RENAMED_ARGUMENTS[name]
    if old == "hps":
        _let_parents_take_hps(cls, name)  # for its super()
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


def _let_parents_take_hps(cls: type[Any], name: str) -> None:
    for parent in cls.__mro__[1:]:
        method = vars(parent).get(name)
        if method is not None:
            setattr(parent, name, takes_hps(method))


def accepted(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Those of the arguments that a function can take; one that is set and cannot be taken stays, to be refused."""
    parameters = signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters or value is not None}
