"""A hook is declared once, in its specification: methods and reference are written from there."""

import inspect

import hook_texts
import pytest

from plugrad import Learner
from plugrad.hooks.dispatch import hook_methods
from plugrad.hooks.manager import specifications

METHODS = hook_methods(Learner)
TEXTS = dict(hook_texts.written())


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_what_is_written_from_the_specifications_is_up_to_date(path):
    assert path.read_text() == TEXTS[path], f"run: {hook_texts.COMMAND}"


@pytest.mark.parametrize("method", METHODS)
def test_help_shows_what_the_specification_says(method):
    specification = inspect.getdoc(specifications()[METHODS[method]])
    summary = specification.split("\n")[0]
    assert inspect.getdoc(getattr(Learner, method)).startswith(summary)
    names = set(inspect.signature(getattr(Learner, method)).parameters) - {"self"}
    assert all(f"{name}:" in inspect.getdoc(getattr(Learner, method)) for name in names)


def test_no_method_of_the_learner_repeats_what_a_specification_says():
    """`apply_gradients` alone does more than to ask; its text is that of the hook."""
    own = {name: vars(Learner)[name] for name in METHODS if name in vars(Learner)}
    assert own.keys() == {"apply_gradients"}
    assert own["apply_gradients"].__doc__ is None


def test_every_hook_that_has_a_method_says_so():
    stated = {
        spec.form["name"]: spec.name
        for file in hook_texts.WITH_METHODS
        for spec in hook_texts.specs(file)
        if spec.form is not None
    }
    assert stated == METHODS
