"""Capabilities are an enum: strings of before are accepted, others are errors, and the suite proves each."""

import ast
import pickle
from pathlib import Path

import pytest

import plugrad.hooks.backend_types
import plugrad.testing.backend_suite
from plugrad.errors import PluginError
from plugrad.hooks.backend_spec import BackendInfo, Capability

SUITE = Path(plugrad.testing.backend_suite.__file__).parent


def test_members_and_their_strings_are_the_same():
    by_member = BackendInfo("mine", "1", capabilities={Capability.XLA, Capability.FRAMEWORK_OPTIMIZERS})
    by_string = BackendInfo("mine", "1", capabilities=["xla", "native_optimizers"])
    assert by_member == by_string == pickle.loads(pickle.dumps(by_string))
    assert all(isinstance(each, Capability) for each in by_string.capabilities)
    assert "native_optimizers" in by_member.capabilities
    assert "user_modules" not in by_member.capabilities


def test_the_name_of_a_member_is_accepted_too():
    found = BackendInfo("mine", "1", capabilities=("framework_optimizers",)).capabilities
    assert found == {Capability.FRAMEWORK_OPTIMIZERS}


@pytest.mark.parametrize(
    ("wrong", "closest"), [("exact_kink", "exact_kinks"), ("framework_optimizer", "framework_optimizers")]
)
def test_an_unknown_capability_names_the_closest(wrong, closest):
    with pytest.raises(PluginError, match=f"no capability '{wrong}'.* Did you mean '{closest}'"):
        BackendInfo("mine", "1", capabilities={wrong})


def test_each_says_what_holds_where_it_is_declared():
    (tree,) = (
        node
        for node in ast.parse(Path(plugrad.hooks.backend_types.__file__).read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "Capability"
    )
    documented = {
        name.targets[0].id
        for name, text in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(name, ast.Assign) and isinstance(text, ast.Expr) and len(ast.unparse(text)) > 40
    }
    assert documented == set(Capability.__members__)


def test_the_suite_asks_for_each():
    """By `requires(backend_info, Capability.X)` in a test, or a row of the hooks that a capability means."""
    asked = set()
    for path in SUITE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            is_call = isinstance(node, ast.Call) and ast.unparse(node.func) == "requires"
            is_table = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DECLARED"
            if is_call or is_table:
                asked |= {
                    each.attr
                    for each in ast.walk(node)
                    if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "Capability"
                }
    assert asked == set(Capability.__members__)
