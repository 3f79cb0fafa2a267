"""Names of RLlib's older versions: the core knows how they are spelled, the plugin `plugrad_rllib` what they do.

The plugin is found by its entry point (its group is `GROUP`), and loaded when the first older name is met:

- as a name of `plugrad` (`find_older_name`), or of a class (`OlderName`, which stands in its place until then),
- as an override in a subclass, or as the name of an override's argument (`HasOlderNames`),
- as an argument that is unknown: `older_settings` of a config, `call_with_older_arguments` of an update.

Then the plugin changes the classes. Until then they are as written: older names cost a call nothing.

It also has what else only RLlib's users need, and changes no class for it: the command `plugrad migrate`, RLlib's
interface to environments of many agents, RLlib's defaults (`rllib_plugin`).
"""

from collections.abc import Callable, Iterator, Mapping
from inspect import signature
from threading import RLock
from types import MappingProxyType
from typing import Any, TypeVar

from plugrad.errors import ConfigError, PluginError

T = TypeVar("T")
GROUP = "plugrad.older_names"
OF_PLUGRAD = frozenset(
    {
        "DEFAULT_POLICY_ID",
        "ENTROPY_KEY",
        "LEARNER_RESULTS_CURR_KL_COEFF_KEY",
        "LEARNER_RESULTS_CURR_LR_KEY",
        "POLICY_LOSS_KEY",
        "VF_LOSS_KEY",
        "FrameworkHyperparameters",
        "LearnerGroupScalingConfig",
        "LearnerHyperparameters",
        "LearnerSpec",
        "MultiAgentRLModule",
        "MultiAgentRLModuleSpec",
        "SampleBatch",
        "SingleAgentRLModuleSpec",
        "TorchCompileWhatToCompile",
    }
)
"""Names of the package itself."""
_SAVING = ("load_state", "save_state")
OF_CLASSES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Learner": (
            *_SAVING,
            "_get_metadata",
            "_load_optimizers",
            "_module",
            "_reset",
            "_save_optimizers",
            "additional_update",
            "additional_update_for_module",
            "compute_loss",
            "get_module_state",
            "get_optimizer_state",
            "hps",
            "set_module_state",
            "set_optimizer_state",
        ),
        "LearnerGroup": (
            *_SAVING,
            "additional_update",
            "async_update",
            "get_in_queue_stats",
            "_learner",
            "load_module_state",
            "set_is_module_trainable",
            "update_from_batch",
            "update_from_episodes",
        ),
        "RLModule": ("as_multi_agent",),
        "MultiRLModule": ("as_multi_agent",),
        "Config": (
            "num_cpus_per_learner_worker",
            "num_gpus_per_learner_worker",
            "num_learner_workers",
            "overrides",
            "resources",
        ),
    }
)
"""`{class: its attributes}`."""
OF_OVERRIDES: Mapping[str, str] = MappingProxyType(
    {
        "compute_loss_for_module": "hps",
        "configure_optimizers_for_module": "hps",
        "postprocess_gradients_for_module": "hps",
        "update": "num_iters",
    }
)
"""`{method of a Learner: an argument that an override may take}`."""
OF_UPDATE = frozenset({"num_iters", "reduce_fn"})
"""Arguments of `update`."""
OF_SECTIONS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "training": frozenset({"model", "num_sgd_iter", "sgd_minibatch_size"}),
        "rl_module": frozenset({"model_config_dict"}),
        "framework": frozenset({"framework"}),
    }
)
"""`{fluent method of a config: its arguments}`."""

_lock = RLock()
_found: Any = None
"""The plugin's module, once it is imported."""
_adapted: Any = None
"""The same, once it has changed the classes."""


def older_names(asked: str) -> Any:
    """Find the plugin and let it change the classes, once.

    Args:
        asked: the older name as the user wrote it, for the error.

    Returns:
        The plugin's module.

    Raises:
        PluginError: it is not installed, or fails to load.
    """
    global _adapted
    with _lock:
        if _adapted is None:
            plugin = rllib_plugin(f"{asked} is an older name of RLlib's")
            plugin.adapt()
            _adapted = plugin
        return _adapted


def rllib_plugin(need: str) -> Any:
    """Import the plugin, which changes nothing yet.

    Args:
        need: what needs it, as a sentence without its full stop, for the error.

    Returns:
        The plugin's module.

    Raises:
        PluginError: it is not installed, or fails to load.
    """
    plugin = find_plugin()
    if plugin is None:
        raise PluginError(
            f"{need}. The plugin plugrad_rllib, which knows what it does, is not there: "
            "pip install --force-reinstall plugrad"
        )
    return plugin


def find_plugin() -> Any:
    """Import the plugin, which changes nothing yet; None if it is not installed.

    Raises:
        PluginError: it fails to load.
    """
    global _found
    if _found is not None:
        return _found
    from importlib.metadata import entry_points  # it takes longer to import than the rest of `import plugrad`

    for entry in entry_points(group=GROUP):
        try:
            _found = entry.load()
            return _found
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and error.name == entry.module.partition(".")[0]:
                continue  # its metadata exists, but its files do not
            raise PluginError(
                f"{entry.value} fails to load, the plugin for RLlib's users: {type(error).__name__}: {error}"
            ) from error
    return None


def find_older_name(name: str) -> Any:
    """What an older name of `plugrad` stands for; `AttributeError` for any other name."""
    if name not in OF_PLUGRAD:
        raise AttributeError(f"module 'plugrad' has no attribute {name!r}")
    return older_names(f"plugrad.{name}").find(name)


class OlderName:
    """An attribute of a class until the plugin replaces it, which it does when the attribute is first read.

    Args:
        owner: the name of the class.
        name: of the attribute.
    """

    def __init__(self, owner: str, name: str) -> None:
        self.owner, self.name = owner, name

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        older_names(f"{self.owner}.{self.name}")
        return getattr(owner if instance is None else instance, self.name)


def with_older_names(cls: type[T]) -> type[T]:
    """Give a class its attributes of `OF_CLASSES`."""
    for name in OF_CLASSES[cls.__name__]:
        setattr(cls, name, OlderName(cls.__name__, name))
    return cls


class HasOlderNames:
    """A class with older names; an override of one in a subclass is called, never ignored."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if HasOlderNames in cls.__bases__:
            with_older_names(cls)
        elif _adapted is not None:
            _adapted.adapt_subclass(cls)
        elif (name := next(_older_overrides(cls), None)) is not None:
            older_names(f"{cls.__name__}.{name}")  # it adapts the classes that exist, this one included


def _older_overrides(cls: type[Any]) -> Iterator[str]:
    base = next(each for each in cls.__mro__ if HasOlderNames in each.__bases__)
    for each in cls.__mro__[: cls.__mro__.index(base)]:
        yield from (name for name in OF_CLASSES[base.__name__] if name in vars(each))
        for method, argument in OF_OVERRIDES.items() if base.__name__ == "Learner" else ():
            override = vars(each).get(method)
            if callable(override) and argument in signature(override).parameters:
                yield f"{method}({argument}=)"


def older_settings(config: Any, section: str, settings: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Translate older arguments of a config's fluent method.

    Args:
        config: the config.
        section: the method's name.
        settings: its arguments.

    Returns:
        The config that the method is to change, and the arguments of today.
    """
    for name in settings:
        if name in OF_SECTIONS.get(section, ()):
            found: tuple[Any, dict[str, Any]]
            found = older_names(f"{section}({name}=)").settings_of_today(config, section, settings)
            return found
    return config, settings


def call_with_older_arguments(
    update: Callable[..., Any], owner: Any, unknown: Mapping[str, Any], settings: Mapping[str, Any]
) -> Any:
    """Call `update` of a Learner or LearnerGroup with arguments that it does not have.

    Args:
        update: the method of the class.
        owner: the object.
        unknown: these arguments.
        settings: all others.

    Raises:
        ConfigError: RLlib has an argument of this name, and plugrad does not.
        TypeError: nobody has one.
    """
    for name in unknown:
        if name in OF_UPDATE:
            continue
        if hint := hint_for(name):
            raise ConfigError(f"update(): plugrad has no {name}=.{hint}", field=name)
        raise TypeError(f"{type(owner).__name__}.update() got an unexpected keyword argument {name!r}")
    return older_names(f"update({next(iter(unknown))}=)").update(update, owner, unknown, settings)


def older_keywords(owner: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Translate older arguments of a Learner's method that is wrapped: `hps=` is `config=`."""
    if "hps" not in arguments:
        return arguments
    found: dict[str, Any] = older_names("hps=").with_config(owner, arguments)
    return found


def hint_for(name: str, kind: str = "setting") -> str:
    """What to use in place of a name of RLlib's that plugrad has not; appended to errors.

    Args:
        name: the name.
        kind: "setting" (also a config's method, or an argument of `update`), or an attribute of "Learner", "Algorithm"
            or "Optimizer".

    Returns:
        ` Here: <what to use>.`, or an empty text.
    """
    plugin = find_plugin()
    text = None if plugin is None else plugin.what_to_use(name, kind)
    return "" if text is None else f" Here: {text}."


class UnknownAttribute(AttributeError):
    """An attribute that is not there. The text is made when it is read: `getattr(x, name, None)` loads no plugin.

    Args:
        name: of the attribute.
        found: the object.
        say: makes the text.
    """

    def __init__(self, name: str, found: Any, say: Callable[[], str]) -> None:
        super().__init__(name=name, obj=found)
        self._say = say

    def __str__(self) -> str:
        return self._say()

    def __reduce__(self) -> tuple[Any, ...]:
        return AttributeError, (str(self),)


def unknown_attribute(found: Any, kind: str, name: str) -> Any:
    """Answer `__getattr__` of a class: raise the error of an unknown attribute, which says what to use.

    Args:
        found: the object.
        kind: as in `hint_for`.
        name: of the attribute.

    Raises:
        AttributeError: always; of a property, its own.
    """
    try:
        return object.__getattribute__(found, name)
    except AttributeError as error:
        if error.obj is not found or error.name != name:
            raise
        text = str(error)
    raise UnknownAttribute(name, found, lambda: f"{text}.{hint_for(name, kind)}".removesuffix("."))
