"""One learner's plugins: which plugin answers each hook, which ones wrap it, and the learner's method with its name.

Providers have tiers: core default < backend < algorithm < the learner's class. For each `firstresult` hook one provider
is chosen here, and everything is bound, when the learner is built.

- A hook that nobody wraps or overrides becomes an instance attribute of the learner: its provider. A call of
  `learner.compute_losses(...)` is one call of that function.
- A hook that a plugin wraps becomes an instance attribute that runs the wrappers. At the end of the chain is the method
  of the learner's class where a subclass overrides it, else the provider.
- `super()` only looks at classes: it reaches the Learner's own method, which calls the provider.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, wraps
from types import MethodType, ModuleType, NoneType
from typing import Any, get_args

import pluggy

from plugrad.deprecation import older_keywords
from plugrad.errors import PluginConflictError, PluginError, did_you_mean
from plugrad.hooks import tracing
from plugrad.hooks.algorithm_spec import AlgorithmSpec
from plugrad.hooks.backend_spec import BackendSpec
from plugrad.hooks.build_spec import AlgorithmBuildSpec, BackendBuildSpec
from plugrad.hooks.gradient_spec import GradientSpec
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.learner_spec import LearnerSpec
from plugrad.hooks.listener_spec import ListenerSpec
from plugrad.hooks.markers import PROJECT, hookimpl, parameters_of, with_parameters
from plugrad.hooks.tracing import with_error_note

BACKEND_SPECIFICATIONS = (BackendBuildSpec, BackendSpec, GradientSpec)
SPECIFICATIONS = (*BACKEND_SPECIFICATIONS, AlgorithmBuildSpec, AlgorithmSpec, LearnerSpec, ListenerSpec)
_OPTIONS = f"{PROJECT}_impl"
_BOUND = "_bound_hooks"  # the attribute with the names of those that were bound
_DIRECT = "_direct_hooks"  # the attribute with providers whose methods do something before, for calls by hand


@dataclass(frozen=True)
class Plugin:
    """A plugin with its tier and name.

    Args:
        tier: "core", "backend", "algorithm" or "listener".
        name: its name in errors.
        implementation: object or module with functions marked `@hookimpl`.
    """

    tier: str
    name: str
    implementation: Any

    def __str__(self) -> str:
        return f"{self.tier} {self.name!r}"


@cache
def specifications(classes: tuple[type[Any], ...] = SPECIFICATIONS) -> Mapping[str, Callable[..., Any]]:
    """`{hook name: specification function}`, all of them or those of some classes."""
    found = {
        name.lstrip("_"): getattr(function, "specification", function)
        for spec in classes
        for name, function in vars(spec).items()
    }
    return {name: function for name, function in found.items() if hasattr(function, f"{PROJECT}_spec")}


def has_one_answer(specification: Callable[..., Any]) -> bool:
    """Whether one plugin answers the hook; otherwise all that implement it are called."""
    return bool(getattr(specification, f"{PROJECT}_spec")["firstresult"])


def marked_functions(implementation: Any) -> dict[str, Callable[..., Any]]:
    """`{name: function}` of what is marked `@hookimpl` in an object, a module or a class, unchecked."""
    found: dict[str, Callable[..., Any]] = {}
    may_compute = type(implementation) is not ModuleType
    for name in dir(implementation):
        static = inspect.getattr_static(implementation, name, None) if may_compute else None
        if isinstance(static, property | cached_property):
            continue  # reading it would run the plugin's code
        function = getattr(implementation, name, None)
        if inspect.isroutine(function) and hasattr(function, _OPTIONS):
            found[name] = function
    return found


def implementations(plugin: Plugin) -> dict[str, Callable[..., Any]]:
    """`{hook name: function}` of a plugin, after checking that each can be called as specified.

    Raises:
        PluginError: for a plugin without any hook; for an unknown hook name, an argument that the hook does not have, a
            default value, or keyword-only and variadic arguments, which pluggy would register and then call wrongly;
            for a generator that is not marked as a wrapper, which would never run; and for a wrapper that is not a
            generator.
    """
    found: dict[str, Callable[..., Any]] = {}
    for name, function in marked_functions(plugin.implementation).items():
        _check_mark(plugin, name, function)
        _check_signature(plugin, name, function)
        found[name] = function
    if not found and plugin.tier != "core":
        unmarked = (name for name in dir(plugin.implementation) if name in specifications())
        which = " and ".join(unmarked) or "its functions or methods"
        raise PluginError(f"{plugin} has no hook: write @hookimpl above {which}")
    return found


def is_wrapper(function: Callable[..., Any]) -> bool:
    """Whether an implementation is a wrapper, marked with `@hookimpl(wrapper=True)`."""
    return bool(getattr(function, _OPTIONS)["wrapper"])


def _check_mark(plugin: Plugin, name: str, function: Callable[..., Any]) -> None:
    where, options = f"{plugin}, hook {name!r}", getattr(function, _OPTIONS)
    for option in ("hookwrapper", "specname", "optionalhook"):
        if options[option]:
            raise PluginError(f"{where}: hookimpl's {option}= is not supported (wrapper=True is)", hook=name)
    if is_wrapper(function) != inspect.isgeneratorfunction(function):
        wrong = "a wrapper must yield once" if is_wrapper(function) else "what yields must be a wrapper"
        raise PluginError(f"{where}: {wrong}: @hookimpl(wrapper=True) and `return (yield)`", hook=name)


def _check_signature(plugin: Plugin, name: str, function: Callable[..., Any]) -> None:
    spec = specifications().get(name)
    if spec is None:
        hint = did_you_mean(name, specifications())
        raise PluginError(f"{plugin} implements {name!r}, which is no hook of plugrad.{hint}", hook=name)
    allowed = list(parameters_of(spec))[1:]
    for argument in parameters_of(function).values():
        where = f"{plugin}, hook {name!r}, argument {argument.name!r}"
        if argument.kind is not argument.POSITIONAL_OR_KEYWORD:
            raise PluginError(
                f"{where}: keyword-only and variadic arguments do not work in a hook", hook=name
            )
        if argument.default is not argument.empty:
            raise PluginError(
                f"{where}: a hook argument cannot have a default; remove '={argument.default!r}'", hook=name
            )
        if argument.name not in allowed:
            hint = ": give an instance of the class" if argument.name == "self" else ""
            raise PluginError(f"{where}: the hook's arguments are ({', '.join(allowed)}){hint}", hook=name)


class _PluginManager(pluggy.PluginManager):
    """pluggy's manager, which takes no plugin after the learner has bound its hooks: it would never be called."""

    is_complete = False

    def register(self, plugin: object, name: str | None = None) -> str | None:
        """Register a plugin.

        Raises:
            PluginError: the learner is built.
        """
        if self.is_complete:
            who = name or getattr(plugin, "__name__", type(plugin).__name__)
            raise PluginError(
                f"plugin {who!r} is registered after the learner was built, so no hook would call it: name it before, "
                "with config.plugins(...), PLUGRAD_PLUGINS or Learner(plugins=[...])"
            )
        return super().register(plugin, name)


class HookManager:
    """The plugins of one learner.

    Args:
        plugins: all of them, in tier order; later ones wrap earlier ones.
        base_implementations: `{hook name: function}`, the end of the chain of wrappers: the learner's method, so that a
            subclass's override is wrapped, too.
        passed_on: hooks whose chain ends with the provider itself.

    Raises:
        PluginError: a plugin does not fit the specifications.
        PluginConflictError: two plugins answer a hook that takes one answer.

    Attributes:
        overridden: hooks that the learner's class overrides, or that somebody set.
        implemented: `{hook: calls all that implement it}`; the others are missing.
    """

    overridden: Collection[str] = ()

    def __init__(
        self,
        plugins: Iterable[Plugin],
        base_implementations: Mapping[str, Callable[..., Any]],
        passed_on: Collection[str] = (),
    ) -> None:
        self._providers: dict[str, tuple[Plugin, Callable[..., Any], tuple[str, ...]]] = {}
        self._plugins: list[Plugin] = []
        self._is_traced = tracing.is_asked_for()
        self._pluggy = _PluginManager(PROJECT)
        self._pluggy.add_hookspecs(_named("plugrad", specifications()))
        for plugin in (*([Plugin("core", "tracing", tracing)] if self._is_traced else []), *plugins):
            self._admit(plugin)
        provided = {name: self._providers[name][1] for name in passed_on if name in self._providers}
        self._pluggy.register(_named("learner", {**base_implementations, **provided}))
        self._pluggy.check_pending()
        self._pluggy.is_complete = True
        callers = {name: getattr(self._pluggy.hook, name) for name in specifications()}
        self.implemented = {name: caller for name, caller in callers.items() if caller.get_hookimpls()}

    def _admit(self, plugin: Plugin) -> None:
        if any(plugin.implementation is other.implementation for other in self._plugins):
            raise PluginConflictError(f"{plugin} is registered twice on one learner")
        beside = {}
        for name, function in self._functions_of(plugin).items():
            if (wraps := is_wrapper(function)) or not has_one_answer(specifications()[name]):
                beside[name] = with_error_note(str(plugin), name, function, is_wrapper=wraps)
            else:
                self._provide(plugin, name, function)
        self._plugins.append(plugin)
        # Two listeners of one class have the same name; pluggy needs different names.
        self._pluggy.register(_named(str(plugin), beside), name=f"{plugin}, number {len(self._plugins)}")

    def _functions_of(self, plugin: Plugin) -> dict[str, Callable[..., Any]]:
        found = implementations(plugin)
        if not self._is_traced or plugin.implementation is tracing:
            return found
        return {
            name: tracing.traced(str(plugin), name, function, is_wrapper=is_wrapper(function))
            for name, function in found.items()
        }

    def _provide(self, plugin: Plugin, name: str, function: Callable[..., Any]) -> None:
        present = self._providers.get(name)
        if plugin.tier == "listener":
            who = f"{present[0]} answers it already" if present else "a backend or an algorithm gives it"
            raise PluginConflictError(
                f"{plugin} answers {name!r}, where one answer is meant; {who}: wrap it with "
                "@hookimpl(wrapper=True)",
                hook=name,
            )
        if present and present[0].tier != "core":
            raise PluginConflictError(
                f"{present[0]} and {plugin} both answer {name!r}, where one is meant", hook=name
            )
        self._providers[name] = plugin, function, tuple(parameters_of(function))

    def has_provider(self, name: str) -> bool:
        """Whether the core, the backend or the algorithm provides this hook."""
        return name in self._providers

    def provide(self, name: str, **arguments: Any) -> Any:
        """Call the provider of a hook, without wrappers and overrides.

        Args:
            name: the hook.
            **arguments: all arguments of the hook.

        Returns:
            What the provider returns.

        Raises:
            PluginError: the hook has no provider.
        """
        try:
            _, function, wanted = self._providers[name]
        except KeyError:
            raise PluginError(f"no plugin answers the hook {name!r}", hook=name) from None
        return function(*map(arguments.__getitem__, wanted))

    def bound_provider(
        self, name: str, owner: object, declared: Callable[..., Any]
    ) -> Callable[..., Any] | None:
        """The provider of a hook as a method of a learner, without a function between the call and it.

        Args:
            name: the hook.
            owner: the learner.
            declared: the learner's method that declares the hook: its arguments, defaults and `**kwargs`.

        Returns:
            The provider; None if there is none, or if it takes other arguments than the method.
        """
        if name not in self._providers:
            return None
        _, function, wanted = self._providers[name]
        _, *parameters = parameters_of(declared).values()
        arguments = tuple(each.name for each in parameters)
        if wanted not in (arguments, ("learner", *arguments)):
            return None
        method = with_parameters(function, wanted, parameters)
        return method if method is None or wanted == arguments else MethodType(method, owner)

    def fills_in_config(self, name: str) -> bool:
        """Whether a provider of the core's fills in the module's config itself: its argument may be None."""
        if name not in self._providers or self._providers[name][0].tier != "core":
            return False
        config = parameters_of(self._providers[name][1]).get("config")
        return config is not None and NoneType in get_args(config.annotation)

    def is_wrapped(self, name: str) -> bool:
        """Whether a call of this hook must run the whole chain."""
        return len(getattr(self._pluggy.hook, name).get_hookimpls()) > 1

    def is_authors(self, name: str) -> bool:
        """Whether a class overrides, a plugin wraps or an algorithm answers a hook."""
        tier = self._providers[name][0].tier
        return name in self.overridden or self.is_wrapped(name) or tier not in ("core", "backend")

    def is_changed(self, name: str, attribute: Any) -> bool:
        """Whether a learner's attribute with the name of a hook's method is anything else than the bound provider.

        Args:
            name: the hook.
            attribute: the learner's own; None if there is none.

        Returns:
            True where a plugin wraps the hook, or somebody set the attribute.
        """
        if attribute is None:
            return False
        functions = (attribute, getattr(attribute, "__func__", None))
        return not (name in self._providers and self._providers[name][1] in functions)

    def check_wrappable(self, wrappable: Iterable[str]) -> None:
        """Refuse wrappers that would never run.

        Raises:
            PluginError: a plugin wraps a hook that has one answer and is not a method of the Learner.
        """
        known = set(wrappable)
        for name, spec in specifications().items():
            hook = getattr(self._pluggy.hook, name)
            if has_one_answer(spec) and name not in known and hook.get_hookimpls():
                who = hook.get_hookimpls()[0].plugin.__name__
                raise PluginError(
                    f"{who} wraps {name!r}, which cannot be wrapped: it is asked when something is built",
                    hook=name,
                )

    def call_hook(self, name: str, **arguments: Any) -> Any:
        """Call a hook with its wrappers, the last registered one outermost, around the learner's own method.

        Args:
            name: the hook.
            **arguments: all arguments of the hook.

        Returns:
            What the outermost wrapper returns; for a listener hook, a list of what listeners returned.
        """
        return self.implemented[name](**arguments) if name in self.implemented else []

    def call_with(self, answer: Callable[..., Any], name: str, **arguments: Any) -> Any:
        """Call a hook that has one answer, with its wrappers around another answer than the learner's own.

        Args:
            answer: a function of some of the hook's arguments, by their names.
            name: the hook.
            **arguments: all arguments of the hook.

        Returns:
            What the outermost wrapper returns.
        """
        if self.is_wrapped(name):
            return getattr(self._pluggy.hook, name).call_extra([answer], arguments)
        return answer(**{each: arguments[each] for each in parameters_of(answer)})

    def provider_of(self, name: str) -> str:
        """The name of a hook's provider, or "nobody"."""
        return str(self._providers[name][0]) if name in self._providers else "nobody"


def _named(name: str, functions: Mapping[str, Callable[..., Any]]) -> ModuleType:
    """A plugin object with some functions; a module, because pluggy tells plugins apart by equality."""
    vars(module := ModuleType(name)).update(functions)
    return module


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
    methods, cls = hook_methods(base), type(learner)
    declared = {hook: getattr(base, name) for name, hook in methods.items() if _is_declared(cls, base, name)}
    # Others do something before, such as filling in the module's config: calls of the core need none of it.
    passed_on = {hook for hook, each in declared.items() if set(each.__code__.co_names) == {"_provide"}}
    ends = {
        hook: _end_of_chain(cls, base, method, hook)
        for method, hook in methods.items()
        if hook not in passed_on
    }
    manager = HookManager(plugins, ends, passed_on)
    manager.check_wrappable(methods.values())
    attributes = vars(learner)
    for method in attributes.pop(_BOUND, ()):  # of a build that failed
        del attributes[method]
    bound: dict[str, Callable[..., Any]] = {}
    direct: dict[str, Callable[..., Any]] = {}
    for method, hook in methods.items():
        if manager.is_wrapped(hook):
            bound[method] = _with_wrappers(learner, getattr(base, method), hook, manager)
        elif method in attributes:
            continue  # somebody set it, as if it were overridden
        elif hook in passed_on or (hook in declared and manager.fills_in_config(hook)):
            if (provider := manager.bound_provider(hook, learner, getattr(base, method))) is not None:
                bound[method] = provider
        elif hook in declared:
            if (provider := manager.bound_provider(hook, learner, getattr(base, method))) is not None:
                direct[method] = provider
        elif (shown := _method(cls, base, method, hook)) is not getattr(cls, method):
            bound[method] = MethodType(shown, learner)
    manager.overridden = {
        hook
        for method, hook in methods.items()
        if method in attributes or getattr(cls, method) is not getattr(base, method)
    }
    attributes.update({**bound, _BOUND: tuple(bound), _DIRECT: direct})
    return manager


def _is_declared(cls: type[Any], base: type[Any], method: str) -> bool:
    """Whether a hook's method is the one that declares it: not overridden, and not adapted to older names."""
    declared = getattr(base, method)
    is_own = getattr(cls, method) is declared and "specification" in vars(declared)
    return is_own and not hasattr(declared, "__wrapped__")  # which takes `hps=`, too


def _end_of_chain(cls: type[Any], base: type[Any], method: str, hook: str) -> Callable[..., Any]:
    """What the innermost wrapper calls: the method of the learner's class."""
    function = _method(cls, base, method, hook)
    _, *declared = parameters_of(getattr(base, method)).values()
    positional = [each.name for each in declared if each.kind is each.POSITIONAL_OR_KEYWORD]
    spec = specifications()[hook]
    arguments = list(parameters_of(spec))[2:]

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
    chain: Callable[..., Any] = manager.implemented[hook]  # what `call_hook` calls

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs.keys() != names:  # otherwise there is nothing to bind
            kwargs = older_keywords(self, kwargs)
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            kwargs = {name: value for name, value in bound.arguments.items() if name != "self"}
        return chain(learner=self, **kwargs)

    return MethodType(call, learner)
