"""How a Learner method and the hook with its name work together.

- If a plugin wraps a hook, the learner gets an instance attribute with that name, so that
  `learner.compute_losses(...)` runs the chain of wrappers.
- At the end of the chain is the method of the learner's class, which may be a subclass's override.
- `super()` only looks at classes, so it never finds the instance attribute. It reaches `Learner`'s own method, which
  calls the provider.

A hook without wrappers has no such attribute: calling it costs one method call.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from types import MethodType
from typing import Any

from plugrad.deprecation import adaptable
from plugrad.hooks import tracing
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.manager import HookManager, specifications
from plugrad.hooks.markers import hookimpl


def hook_methods(cls: type[Any]) -> dict[str, str]:
    """`{method name: hook name}` for every method of `cls` that is a hook; its name has no leading underscore.

    The hook `update` is the method `_update`, one gradient step; around the public `update()` there are listener hooks.
    """
    hooks = specifications()
    methods = {name for base in cls.__mro__ for name, value in vars(base).items() if callable(value)}
    names = {name: name.lstrip("_") for name in sorted(methods)}
    return {name: hook for name, hook in names.items() if hook in hooks and name != "update"}


def base_implementations(learner: LearnerProtocol, base: type[Any]) -> dict[str, Callable[..., Any]]:
    """The implementations inside the wrappers: they call the methods of the learner's class.

    Args:
        learner: the learner.
        base: the class whose methods are hooks.

    Returns:
        `{hook name: implementation}`.
    """
    return {
        hook: _implementation(type(learner), base, method, hook)
        for method, hook in hook_methods(base).items()
    }


def _implementation(cls: type[Any], base: type[Any], method: str, hook: str) -> Callable[..., Any]:
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


def install_wrappers(learner: LearnerProtocol, base: type[Any], manager: HookManager) -> None:
    """Give the learner an attribute for each of its hooks that a plugin wraps, or whose calls are traced.

    Args:
        learner: the learner.
        base: the class whose methods are hooks.
        manager: the manager of its plugins.

    Raises:
        PluginError: a plugin wraps a hook that cannot be wrapped.
    """
    manager.check_wrappable(hook_methods(base).values())
    for method, hook in hook_methods(base).items():
        shown = _method(type(learner), base, method, hook)
        if manager.is_wrapped(hook):
            setattr(learner, method, _with_wrappers(learner, getattr(base, method), hook, manager))
        elif shown is not getattr(type(learner), method):
            setattr(learner, method, MethodType(shown, learner))


def _with_wrappers(
    learner: LearnerProtocol, method: Callable[..., Any], hook: str, manager: HookManager
) -> Callable[..., Any]:
    signature = inspect.signature(method)
    takes_any = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    names = None if takes_any else signature.parameters.keys() - {"self"}

    @adaptable
    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs.keys() != names:  # otherwise there is nothing to bind
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            kwargs = {name: value for name, value in bound.arguments.items() if name != "self"}
        return manager.call_hook(hook, learner=learner, **kwargs)

    return MethodType(call, learner)
