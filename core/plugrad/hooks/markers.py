"""Decorators: `hookimpl` for plugins, `hookspec` and `learner_method` for hook declarations; the arguments of both."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import pluggy

from plugrad.contract import since, since_version

PROJECT = "plugrad"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

Method = TypeVar("Method", bound=Callable[..., Any])


def learner_method(method: Method) -> Method:
    """Declare a hook by the Learner method that calls it. The hook has its name, without the leading underscore.

    If a later version of the contract added the hook, put `@since(2)` below this decorator. An implementation takes the
    learner first, then the method's arguments, with `**kwargs` as one dict.
    """
    vars(method)["specification"] = _specification(method)
    return method


def _specification(method: Callable[..., Any]) -> Callable[..., Any]:
    """A function `(self, learner, ...)` for `hookspec`, without defaults and bare stars."""
    own, *arguments = inspect.signature(method).parameters
    names = (own, "learner", *arguments)
    # pluggy reads the names of arguments from a function's code.
    code = (lambda: None).__code__.replace(co_argcount=len(names), co_nlocals=len(names), co_varnames=names)
    specification = FunctionType(code, {}, method.__name__)
    specification.__qualname__, specification.__doc__ = method.__qualname__, method.__doc__
    return hookspec(firstresult=True)(since(since_version(method))(specification))


_parameters: WeakKeyDictionary[Callable[..., Any], Mapping[str, inspect.Parameter]] = WeakKeyDictionary()


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """`{name: parameter}` of a declaration or an implementation, for which each new learner asks."""
    if function not in _parameters:
        _parameters[function] = inspect.signature(function).parameters
    return _parameters[function]


def with_parameters(
    function: Callable[..., Any], wanted: Sequence[str], parameters: Sequence[inspect.Parameter]
) -> Callable[..., Any] | None:
    """A provider that takes what the method takes: with its defaults, and its `**kwargs` in place of the last argument.

    A hook's implementation has neither. It is the same code, so that a call has no frame of its own for them.

    Args:
        function: the provider.
        wanted: names of its arguments.
        parameters: of the method.

    Returns:
        The provider; None if it is no plain function.
    """
    defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    if not defaults and not takes_any:
        return function
    named = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    plain: Any = getattr(function, "__func__", function)
    if not isinstance(plain, FunctionType):
        return None
    code, bound_to = plain.__code__, getattr(function, "__self__", None)
    names = code.co_varnames[: code.co_argcount]
    if names[bound_to is not None :] != tuple(wanted):
        return None  # a decorator's own function
    if named or takes_any:  # a function's variables begin with its arguments: positional, named, **kwargs
        code = code.replace(
            co_argcount=code.co_argcount - len(named) - takes_any,
            co_kwonlyargcount=len(named),
            co_flags=code.co_flags | (inspect.CO_VARKEYWORDS if takes_any else 0),
        )
    positional = tuple(value for name, value in defaults.items() if name not in named)
    made = FunctionType(code, plain.__globals__, plain.__name__, positional or None, plain.__closure__)
    made.__kwdefaults__ = {name: value for name, value in defaults.items() if name in named} or None
    made.__qualname__, made.__doc__, made.__module__ = plain.__qualname__, plain.__doc__, plain.__module__
    return made if bound_to is None else MethodType(made, bound_to)
