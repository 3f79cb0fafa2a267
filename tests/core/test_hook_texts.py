"""A hook is declared once, by its method or its specification: the reference is written from there."""

import inspect

import hook_texts
import pytest

from plugrad import Learner
from plugrad.hooks.dispatch import hook_methods
from plugrad.hooks.manager import specifications

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
    """`apply_gradients` alone does more than to ask; its text is that of the hook."""
    own = {name: vars(Learner)[name] for name in METHODS if name in vars(Learner)}
    assert own.keys() == {"apply_gradients"}
    assert own["apply_gradients"].__doc__ is None
