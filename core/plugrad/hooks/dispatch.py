"""How a Learner method and the hook of its name are one thing.

- If a plugin wraps a hook, the learner gets an instance attribute of that name, which `learner.compute_losses(...)`
  finds. It runs the chain of wrappers.
- At the end of the chain stands the method as the class has it: the override of a subclass if there is one.
- `super()` looks at classes only, so it never finds the instance attribute: it goes down to `Learner`'s own method, and
  that calls the provider.

A hook that nobody wraps has no such attribute: its call costs one method call.
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
    """`{method name: hook name}`: every method of `cls` that has a hook, which is its name without leading underscore.

    `update` is the exception: the hook `update` is one gradient step, the method `_update`; the public `update()`
    has listeners at its edges.
    """
    hooks = specifications()
    methods = {name for base in cls.__mro__ for name, value in vars(base).items() if callable(value)}
    names = {name: name.lstrip("_") for name in sorted(methods)}
    return {name: hook for name, hook in names.items() if hook in hooks and name != "update"}


def base_implementations(learner: LearnerProtocol, base: type[Any]) -> dict[str, Callable[..., Any]]:
    """The implementations that wrappers are wrapped around: they call the methods of the learner's class.

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

    @wraps(spec)  # pluggy reads the arguments' names from what is wrapped
    def call(learner: LearnerProtocol, *values: Any) -> Any:
        named = dict(zip(arguments, values, strict=True))
        extra = named.pop("kwargs", {})
        return function(learner, *[named.pop(name) for name in positional], **named, **extra)

    return hookimpl(call)


def _method(cls: type[Any], base: type[Any], method: str, hook: str) -> Callable[..., Any]:
    """As the class has it; an override is shown where PLUGRAD_TRACE asks for it."""
    function: Callable[..., Any] = getattr(cls, method)
    if not tracing.is_asked_for() or function is getattr(base, method):
        return function
    return tracing.traced(f"learner {cls.__name__!r}", hook, function)


def install_wrappers(learner: LearnerProtocol, base: type[Any], manager: HookManager) -> None:
    """Give the learner an attribute for each of its hooks that a plugin wraps, or whose calls are traced.

    Args:
        learner: the learner.
        base: the class whose methods are hooks.
        manager: has the plugins.

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
        if args or kwargs.keys() != names:  # else there is nothing to bind
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            kwargs = {name: value for name, value in bound.arguments.items() if name != "self"}
        return manager.call_hook(hook, learner=learner, **kwargs)

    return MethodType(call, learner)
