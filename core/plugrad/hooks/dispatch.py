"""How a Learner method and the hook with its name work together. Everything is bound when the learner is built.

- A hook that nobody wraps or overrides becomes an instance attribute of the learner: its provider. A call of
  `learner.compute_losses(...)` is one call of that function.
- A hook that a plugin wraps becomes an instance attribute that runs the wrappers. At the end of the chain is the method
  of the learner's class where a subclass overrides it, else the provider.
- `super()` only looks at classes, so it never finds the instance attribute. It reaches the Learner's own method, which
  calls the provider.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from types import MethodType
from typing import Any

from plugrad.deprecation import older_keywords
from plugrad.hooks import tracing
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.manager import HookManager, Plugin, specifications
from plugrad.hooks.markers import hookimpl

_BOUND = "_bound_hooks"
"""The attribute with the names of those that were bound."""


def hook_methods(cls: type[Any]) -> dict[str, str]:
    """`{method name: hook name}` for every method of `cls` that is a hook; its name has no leading underscore.

    The hook `update` is the method `_update`, one gradient step; around the public `update()` there are listener hooks.
    """
    hooks = specifications()
    methods = {name for base in cls.__mro__ for name, value in vars(base).items() if callable(value)}
    names = {name: name.lstrip("_") for name in sorted(methods)}
    return {name: hook for name, hook in names.items() if hook in hooks and name != "update"}


def bind_hooks(learner: LearnerProtocol, base: type[Any], plugins: list[Plugin]) -> HookManager:
    """Give the learner an attribute for each of its hooks: the provider, or the chain of wrappers.

    Args:
        learner: the learner, whose class may override methods.
        base: the class whose methods are hooks.
        plugins: in tier order.

    Returns:
        The manager of the plugins.

    Raises:
        PluginError: a plugin does not fit, or wraps a hook that cannot be wrapped.
        PluginConflictError: two plugins answer a hook that takes one answer.
    """
    methods = hook_methods(base)
    passed_on = {hook for name, hook in methods.items() if _only_calls_provider(type(learner), base, name)}
    ends = {
        hook: _end_of_chain(type(learner), base, method, hook)
        for method, hook in methods.items()
        if hook not in passed_on
    }
    manager = HookManager(plugins, ends, passed_on)
    manager.check_wrappable(methods.values())
    attributes = vars(learner)
    for method in attributes.pop(_BOUND, ()):  # of a build that failed
        del attributes[method]
    bound: dict[str, Callable[..., Any]] = {}
    for method, hook in methods.items():
        if manager.is_wrapped(hook):
            bound[method] = _with_wrappers(learner, getattr(base, method), hook, manager)
        elif method in attributes:
            continue  # somebody set it, as if it were overridden
        elif hook in passed_on:
            _, *arguments = inspect.signature(getattr(base, method)).parameters
            if (provider := manager.bound_provider(hook, learner, arguments)) is not None:
                bound[method] = provider
        elif (shown := _method(type(learner), base, method, hook)) is not getattr(type(learner), method):
            bound[method] = MethodType(shown, learner)
    attributes.update({**bound, _BOUND: tuple(bound)})
    return manager


def _only_calls_provider(cls: type[Any], base: type[Any], method: str) -> bool:
    """Whether the method that declares a hook is not overridden, and fills in no arguments."""
    declared = getattr(base, method)
    if getattr(cls, method) is not declared or "specification" not in vars(declared):
        return False
    _, *parameters = inspect.signature(declared).parameters.values()
    is_adapted = hasattr(declared, "__wrapped__")  # by the plugin of older names: it takes `hps=`, too
    return not is_adapted and all(
        each.default is each.empty and each.kind is not each.VAR_KEYWORD for each in parameters
    )


def _end_of_chain(cls: type[Any], base: type[Any], method: str, hook: str) -> Callable[..., Any]:
    """What the innermost wrapper calls: the method of the learner's class."""
    function = _method(cls, base, method, hook)
    positional = [
        name
        for name, parameter in inspect.signature(getattr(base, method)).parameters.items()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and name != "self"
    ]
    spec = specifications()[hook]
    arguments = list(inspect.signature(spec).parameters)[2:]

    @wraps(spec)  # pluggy reads the arguments' names from the wrapped function
    def call(learner: LearnerProtocol, *values: Any) -> Any:
        named = dict(zip(arguments, values, strict=True))
        extra = named.pop("kwargs", {})
        return function(learner, *[named.pop(name) for name in positional], **named, **extra)

    return hookimpl(call)


def _method(cls: type[Any], base: type[Any], method: str, hook: str) -> Callable[..., Any]:
    """The method of the class; an override is traced if PLUGRAD_TRACE is set."""
    function: Callable[..., Any] = getattr(cls, method)
    if not tracing.is_asked_for() or function is getattr(base, method):
        return function
    return tracing.traced(f"learner {cls.__name__!r}", hook, function)


def _with_wrappers(
    learner: LearnerProtocol, method: Callable[..., Any], hook: str, manager: HookManager
) -> Callable[..., Any]:
    signature = inspect.signature(method)
    takes_any = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    names = None if takes_any else signature.parameters.keys() - {"self"}
    chain = manager.chain(hook)

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs.keys() != names:  # otherwise there is nothing to bind
            kwargs = older_keywords(self, kwargs)
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            kwargs = {name: value for name, value in bound.arguments.items() if name != "self"}
        return chain(learner=learner, **kwargs)

    return MethodType(call, learner)
