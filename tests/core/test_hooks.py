"""The contract: what a plugin may look like, who answers a hook, and in which order wrappers run."""

import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import plugrad
from plugrad import Learner, hookimpl
from plugrad.errors import PluginConflictError, PluginError
from plugrad.hooks import algorithm_spec, backend_spec, learner_spec, listener_spec
from plugrad.hooks.manager import HookManager, Plugin, hook_methods, implementations, specifications

SPECS = specifications()
WRAPPABLE = set(hook_methods(Learner).values())
ONE_ANSWER = {name for name, spec in SPECS.items() if spec.plugrad_spec["firstresult"]}
NOT_TO_WRAP = sorted(ONE_ANSWER - WRAPPABLE)


def plugin(tier: str, name: str, *functions: Callable[..., Any]) -> Plugin:
    return Plugin(tier, name, SimpleNamespace(**{each.__name__: each for each in functions}))


def answer(hook: str, value: Any) -> Callable[..., Any]:
    @hookimpl
    def function() -> Any:
        return value

    function.__name__ = hook
    return function


def wrapper(hook: str, change: Callable[[Any], Any]) -> Callable[..., Any]:
    @hookimpl(wrapper=True)
    def function() -> Iterator[Any]:
        return change((yield))

    function.__name__ = hook
    return function


def manager(*plugins: Plugin, base: Any = None) -> HookManager:
    return HookManager(plugins, {} if base is None else {"compute_losses": hookimpl(base)})


# --- what a plugin may look like ----------------------------------------------------------------------------------


@hookimpl
def compute_loses(learner): ...


@hookimpl
def compute_losses(learner, fwd_out, batches): ...


def with_default():
    @hookimpl
    def compute_losses(learner, batch=None): ...

    return compute_losses


def keyword_only():
    @hookimpl
    def compute_losses(learner, *, batch): ...

    return compute_losses


def variadic():
    @hookimpl
    def compute_losses(*arguments): ...

    return compute_losses


def variadic_by_name():
    @hookimpl
    def update_ended(learner, **results): ...

    return update_ended


def without_mark():
    @hookimpl
    def update_ended(results):
        yield

    return update_ended


def without_yield():
    @hookimpl(wrapper=True)
    def compute_losses(learner): ...

    return compute_losses


def old_wrapper():
    @hookimpl(hookwrapper=True)
    def compute_losses(learner):
        yield

    return compute_losses


def renamed():
    @hookimpl(specname="compute_losses")
    def update_ended(learner): ...

    return update_ended


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (compute_loses, r"implements 'compute_loses', .* no hook .* Did you mean 'compute_losses'\?"),
        (compute_losses, r"'compute_losses', argument 'batches': .* are \(learner, fwd_out, batch\)"),
        (with_default(), r"'compute_losses', argument 'batch': .* cannot have a default; remove '=None'"),
        (keyword_only(), r"'compute_losses', argument 'batch': keyword-only"),
        (variadic(), r"'compute_losses', argument 'arguments': .* variadic"),
        (variadic_by_name(), r"'update_ended', argument 'results': .* variadic"),
        (without_mark(), r"'update_ended': what yields must be a wrapper: @hookimpl\(wrapper=True\)"),
        (without_yield(), "'compute_losses': a wrapper must yield once"),
        (old_wrapper(), r"'compute_losses': hookimpl's hookwrapper= is not supported \(wrapper=True is\)"),
        (renamed(), "'update_ended': hookimpl's specname= is not supported"),
    ],
)
def test_what_could_not_be_called_as_written_is_refused_by_name(function, words):
    with pytest.raises(PluginError, match="^listener 'demo'.*" + words) as refused:
        manager(plugin("listener", "demo", function))
    assert refused.value.facts == {"hook": function.__name__}


def test_only_marked_functions_are_looked_at_and_no_property_is_read():
    class Demo:
        @property
        def writer(self):
            raise RuntimeError("opened too early")

        def compute_losses(self, anything="goes"):
            """Not marked: the plugin's own."""

        @hookimpl
        def update_ended(self, results): ...

        @staticmethod
        @hookimpl
        def update_begun(timesteps): ...

    found = implementations(Plugin("listener", "demo", Demo()))
    assert sorted(found) == ["update_begun", "update_ended"]


def test_a_class_in_place_of_an_object_is_told_so():
    class Demo:
        @hookimpl
        def update_ended(self, results): ...

    with pytest.raises(PluginError, match=r"argument 'self': .*\(learner, results\): give an instance"):
        manager(Plugin("listener", "Demo", Demo))


def test_a_module_is_a_plugin():
    module = ModuleType("demo")
    exec("from plugrad import hookimpl\n@hookimpl\ndef ops(learner): return 'mine'", vars(module))
    assert manager(Plugin("backend", "demo", module)).provide("ops", learner=None) == "mine"


# --- who answers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tier", ["backend", "algorithm"])
def test_backend_and_algorithm_answer_in_place_of_the_core(tier):
    core = plugin("core", "updates", answer("compute_losses", "core"))
    hooks = manager(core, plugin(tier, "mine", answer("compute_losses", "mine")))
    assert hooks.provide("compute_losses", learner=None, fwd_out={}, batch={}) == "mine"
    assert hooks.provider_of("compute_losses") == f"{tier} 'mine'"
    assert manager(core).provider_of("compute_losses") == "core 'updates'"


def test_a_provider_gets_the_arguments_that_it_asks_for_in_its_own_order():
    @hookimpl
    def compute_losses(batch, learner):
        return batch, learner

    hooks = manager(plugin("algorithm", "mine", compute_losses))
    assert hooks.provide("compute_losses", learner="l", fwd_out="f", batch="b") == ("b", "l")


@pytest.mark.parametrize("second", ["backend", "algorithm"])
def test_two_answers_where_one_is_meant_are_an_error_that_names_both(second):
    plugins = [
        plugin("backend", "torch", answer("apply_gradients", 1)),
        plugin(second, "other", answer("apply_gradients", 2)),
    ]
    words = f"backend 'torch' and {second} 'other' both answer 'apply_gradients'"
    with pytest.raises(PluginConflictError, match=words):
        manager(*plugins)


def test_a_listener_that_answers_is_told_who_answers_already_and_how_to_wrap():
    listener = plugin("listener", "mine", answer("ops", 2))
    words = r"^listener 'mine' answers 'ops', .*; backend 'torch' answers it already: .*wrapper=True"
    with pytest.raises(PluginConflictError, match=words):
        manager(plugin("backend", "torch", answer("ops", 1)), listener)
    with pytest.raises(PluginConflictError, match="a backend or an algorithm gives it"):
        manager(listener)


def test_a_hook_that_nobody_answers_is_an_error_and_not_none():
    hooks = manager()
    assert not hooks.has_provider("ops")
    assert hooks.provider_of("ops") == "nobody"
    with pytest.raises(PluginError, match="no plugin answers the hook 'ops'"):
        hooks.provide("ops", learner=None)


# --- wrappers and listeners ---------------------------------------------------------------------------------------


def test_wrappers_run_around_the_base_implementation_and_the_last_plugin_is_outermost():
    hooks = manager(
        plugin("algorithm", "inner", wrapper("compute_losses", lambda found: [*found, "inner"])),
        plugin("listener", "outer", wrapper("compute_losses", lambda found: [*found, "outer"])),
        base=lambda learner, fwd_out, batch: [learner, fwd_out, batch],
    )
    assert hooks.is_wrapped("compute_losses")
    found = hooks.call_hook("compute_losses", learner=1, fwd_out=2, batch=3)
    assert found == [1, 2, 3, "inner", "outer"]


def test_an_answer_of_none_is_an_answer():
    """pluggy goes on to the next implementation when one returns None: there must be no next one."""
    plugins = [
        plugin("core", "updates", answer("compute_losses", "core")),
        plugin("algorithm", "mine", answer("compute_losses", None)),
        plugin("listener", "outer", wrapper("compute_losses", lambda found: found)),
    ]
    hooks = manager(*plugins, base=lambda learner, fwd_out, batch: None)
    assert hooks.provide("compute_losses", learner=1, fwd_out=2, batch=3) is None
    assert hooks.call_hook("compute_losses", learner=1, fwd_out=2, batch=3) is None


def test_an_error_below_passes_through_a_wrapper():
    def fail(learner, fwd_out, batch):
        raise ZeroDivisionError("below")

    seen = []

    @hookimpl(wrapper=True)
    def compute_losses():
        try:
            return (yield)
        except ZeroDivisionError as error:
            seen.append(str(error))
            raise

    hooks = manager(plugin("listener", "mine", compute_losses), base=fail)
    with pytest.raises(ZeroDivisionError, match="below") as raised:
        hooks.call_hook("compute_losses", learner=1, fwd_out=2, batch=3)
    assert seen == ["below"]
    assert not hasattr(raised.value, "__notes__")


@hookimpl(wrapper=True)
def never_yields():
    return
    yield


@hookimpl(wrapper=True)
def yields_twice():
    yield
    yield


@hookimpl(wrapper=True)
def raises_before():
    raise ZeroDivisionError("its own")
    yield


@hookimpl(wrapper=True)
def raises_after():
    yield
    raise ZeroDivisionError("its own")


@hookimpl(wrapper=True)
def raises_another():
    try:
        yield
    except KeyError as error:
        raise ZeroDivisionError("its own") from error


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (never_yields, PluginError, "a wrapper must yield once"),
        (yields_twice, PluginError, "a wrapper must yield once"),
        (raises_before, ZeroDivisionError, "its own"),
        (raises_after, ZeroDivisionError, "its own"),
        (raises_another, ZeroDivisionError, "its own"),
    ],
)
def test_an_error_of_a_wrapper_names_it_and_not_those_around_it(function, error, words):
    below = {raises_another: {}}.get(function, {"a": 1})
    culprit = Plugin("listener", "culprit", SimpleNamespace(compute_losses=function))
    around = [plugin("listener", name, wrapper("compute_losses", lambda found: found)) for name in ("a", "b")]
    hooks = manager(around[0], culprit, around[1], base=lambda learner, fwd_out, batch: below["a"])
    with pytest.raises(error, match=words) as raised:
        hooks.call_hook("compute_losses", learner=1, fwd_out=2, batch=3)
    assert raised.value.__notes__ == ["raised by listener 'culprit', hook 'compute_losses'"]


def test_an_error_of_a_listener_names_it():
    @hookimpl
    def update_ended(results):
        raise ZeroDivisionError(f"its own, at {results}")

    hooks = manager(plugin("listener", "culprit", update_ended))
    with pytest.raises(ZeroDivisionError, match="its own, at here") as raised:
        hooks.call_hook("update_ended", learner=None, results="here")
    assert raised.value.__notes__ == ["raised by listener 'culprit', hook 'update_ended'"]


class Ears:
    """A listener; two of one class are two listeners."""

    def __init__(self, heard):
        self.heard = heard

    @hookimpl
    def update_ended(self, results):
        self.heard.append((self, results))


def test_every_listener_hears():
    heard = []
    ears = [Ears(heard), Ears(heard)]
    hooks = manager(*[Plugin("listener", "Ears", each) for each in ears])
    hooks.call_hook("update_ended", learner=None, results={"loss": 1.0})
    assert sorted(map(id, ears)) == sorted(id(each) for each, _ in heard)
    assert [results for _, results in heard] == [{"loss": 1.0}] * 2


def test_one_object_cannot_listen_twice():
    ears = Ears([])
    with pytest.raises(PluginConflictError, match="listener 'b' is registered twice"):
        manager(Plugin("listener", "a", ears), Plugin("listener", "b", ears))


@pytest.mark.parametrize("hook", NOT_TO_WRAP)
def test_a_wrapper_that_nothing_would_run_is_refused(hook):
    hooks = manager(plugin("listener", "mine", wrapper(hook, lambda found: found)))
    with pytest.raises(PluginError, match=f"^listener 'mine' wraps '{hook}', which cannot be wrapped"):
        hooks.check_wrappable(WRAPPABLE)


def is_wrappable(hook):
    try:
        manager(plugin("listener", "mine", wrapper(hook, lambda found: found))).check_wrappable(WRAPPABLE)
    except PluginError:
        return False
    return True


def test_all_other_hooks_can_be_wrapped():
    assert {hook for hook in SPECS if not is_wrappable(hook)} == set(NOT_TO_WRAP)


# --- no drift -----------------------------------------------------------------------------------------------------


def test_what_is_asked_once_at_build_or_around_a_first_loss_is_all_that_cannot_be_wrapped():
    assert set(NOT_TO_WRAP) == {
        "backend_info",
        "get_config_class",
        "get_default_rl_module_spec",
        "get_training_class",
        "get_learner_connectors",
        "ops",
        "watch_operations",
    }


@pytest.mark.parametrize(("method", "hook"), hook_methods(Learner).items())
def test_a_learner_method_and_its_hook_have_the_same_arguments(method, hook):
    of_method = list(inspect.signature(getattr(Learner, method)).parameters)[1:]
    of_hook = list(inspect.signature(SPECS[hook]).parameters)[2:]
    assert sorted(of_method) == sorted(of_hook)


def examples(text: str) -> list[str]:
    """The indented blocks of a docstring that begin with a mark, without their indentation."""
    lines = inspect.cleandoc(text).split("\n")
    starts = [n for n, line in enumerate(lines) if line.strip().startswith("@hookimpl")]
    blocks = []
    for n in starts:
        indent = len(lines[n]) - len(lines[n].lstrip())
        rest = [line for line in lines[n:] if not line.strip() or len(line) - len(line.lstrip()) >= indent]
        blocks.append(textwrap.dedent("\n".join(rest)))
    return blocks


def accepted(code: str) -> set[str]:
    """The hooks that a piece of documentation implements, if a learner would take them."""
    namespace: dict[str, Any] = {"hookimpl": hookimpl}
    exec(code, namespace)
    return set(implementations(Plugin("listener", "documentation", SimpleNamespace(**namespace))))


@pytest.mark.parametrize("hook", SPECS)
def test_the_example_in_every_hooks_docstring_is_an_implementation(hook):
    (code,) = examples(SPECS[hook].__doc__)
    assert accepted(code) == {hook}


@pytest.mark.parametrize("module", [plugrad.hooks, learner_spec])
def test_the_examples_on_the_first_pages_are_implementations(module):
    (code,) = examples(module.__doc__)
    assert accepted(code) == {"compute_losses"}


@pytest.mark.parametrize("module", [algorithm_spec, backend_spec, learner_spec, listener_spec])
def test_every_hook_takes_the_learner_first_or_no_learner_at_all(module):
    classes = [
        each for each in vars(module).values() if inspect.isclass(each) and each.__name__.endswith("Spec")
    ]
    names = {name for each in classes if each.__module__ == module.__name__ for name in vars(each)} & set(
        SPECS
    )
    assert names
    for name in names:
        arguments = list(inspect.signature(SPECS[name]).parameters)[1:]
        assert "learner" not in arguments[1:]
