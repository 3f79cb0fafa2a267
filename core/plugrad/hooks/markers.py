"""Decorators: `hookimpl` for plugins, `hookspec` and `learner_method` for hook declarations; the arguments of both."""

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
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
