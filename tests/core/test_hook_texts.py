"""A hook is declared once, by its method or its specification: the reference is written from there."""

import ast
import inspect
from pathlib import Path

import hook_texts
import pytest

from plugrad import CONTRACT_VERSION, Learner
from plugrad.contract import since, since_version
from plugrad.hooks.manager import hook_methods, specifications
from plugrad.hooks.markers import hookspec, learner_method

METHODS = hook_methods(Learner)


def test_the_reference_is_up_to_date():
    present = hook_texts.PAGE.read_text()
    assert present == hook_texts.page(present), f"run: {hook_texts.COMMAND}"


@pytest.mark.parametrize("method", METHODS)
def test_help_shows_what_the_hook_says(method):
    text = inspect.getdoc(getattr(Learner, method))
    assert text == inspect.getdoc(specifications()[METHODS[method]])
    names = set(inspect.signature(getattr(Learner, method)).parameters) - {"self"}
    assert all(f"{name}:" in text for name in names)


def test_a_hook_takes_the_learner_and_what_its_method_takes():
    for method, hook in METHODS.items():
        (_, *names) = inspect.signature(getattr(Learner, method)).parameters
        (_, learner, *arguments) = inspect.signature(specifications()[hook]).parameters.values()
        assert learner.name == "learner"
        assert [each.name for each in arguments] == names
        assert all(each.default is each.empty for each in arguments)
        assert all(each.kind is each.POSITIONAL_OR_KEYWORD for each in arguments)


def test_no_method_of_the_learner_repeats_what_a_specification_says():
    """Two do more than to ask; their text is that of the hook."""
    (written,) = ast.parse(inspect.getsource(Learner)).body  # not vars(): `plugrad_rllib` adds methods
    own = {
        each.name: each for each in written.body if isinstance(each, ast.FunctionDef) and each.name in METHODS
    }
    assert own.keys() == {"apply_gradients", "_get_tensor_variable"}
    assert ast.get_docstring(own["apply_gradients"]) is None


def test_what_came_later_is_marked():
    """A hook, op or capability that is new is `@since(CONTRACT_VERSION)`; none of the first version is gone."""
    first = Path(__file__).with_name("contract_1.txt").read_text().splitlines()
    since = hook_texts.since()
    assert sorted(name for name, version in since.items() if version == 1) == first
    assert {*since.values()} <= {*range(1, CONTRACT_VERSION + 1)}
    assert CONTRACT_VERSION in since.values(), "a version that brings nothing"


def test_the_mark_of_a_method_is_that_of_its_hook():
    class Spec:
        @learner_method
        @since(2)
        def fly(self, height):
            """Up."""

        @learner_method
        def walk(self):
            """On."""

        @hookspec
        @since(3)
        def landed(self):
            """Down."""

    found = {name: since_version(spec) for name, spec in specifications((Spec,)).items()}
    assert found == {"fly": 2, "walk": 1, "landed": 3}
    assert hook_texts.facts("landed", Spec.landed).endswith("Since contract version 3.")
