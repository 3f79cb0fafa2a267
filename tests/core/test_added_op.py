"""An op is declared in `ops.py` and written in `numpy_ops.py` and one file of each backend: all else follows."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from added_op import CopyWithCube

import plugrad
from plugrad.hooks.plugin_records import entries
from plugrad.ops import RULES, Ops

STRICT = """
import numpy as np
from plugrad.errors import ConfigError, PortabilityError
from plugrad.onnx import ops as onnx_ops
from plugrad.testing.strict.backend import watch_operations
from plugrad.testing.strict.backend import OPS as ops

def refused(function):
    try:
        function()
    except (ConfigError, PortabilityError) as error:
        print(error)
    else:
        raise AssertionError("not refused")

x = ops.asarray([2.0, -3.0])
with watch_operations() as operations:
    y = ops.cube(x)
print(y, operations[0].name, operations[0].inputs)
refused(lambda: ops.cube(ops.cast(x, "int64")))
refused(lambda: ops.cube(2.0))
refused(lambda: ops.cube(x=x))
refused(lambda: ops.cube(x, 1))
refused(lambda: ops.cubes(x))
refused(lambda: onnx_ops.cube(x))
"""
WATCHED = """
import numpy as np
from plugrad import numpy_ops
from plugrad.learner.update.broadcast_check import OpRecorder, WatchedOps

recorder = OpRecorder()
cubes = WatchedOps(numpy_ops).cube(recorder.wrapped(np.array([2.0, -3.0])))
print(cubes.tensor, recorder.operations[0].name, recorder.operations[0].outputs)
"""


def test_the_strict_backend_takes_an_added_op_by_its_declaration(tmp_path: Path) -> None:
    """It computes, it is watched, and what its rule does not allow is refused; ONNX has no node for it, and says so."""
    said = CopyWithCube(tmp_path).run("-c", STRICT).splitlines()
    expected = [
        "tensor float32 [2] cube ((2,),)",
        "ops.cube takes a float tensor and is given int64 [2]",
        "ops.cube is given a Python number, 2.0",
        "ops.cube is given x by name",
        "ops.cube: too many positional arguments",
        "there is no op 'cubes'. See plugrad.ops.Ops. Did you mean 'cube'?",
        "ops.cube cannot be exported to ONNX",
    ]
    assert len(said) == len(expected)
    for line, words in zip(said, expected, strict=True):
        assert words in line


def test_an_added_op_is_watched_where_a_backend_watches_none_itself(tmp_path: Path) -> None:
    assert CopyWithCube(tmp_path).run("-c", WATCHED) == "[  8. -27.] cube ((2,),)\n"


def test_the_suite_proves_an_added_op_without_a_case_for_it(tmp_path: Path) -> None:
    """Its arguments, its values in both dtypes and its gradient, by its rule."""
    said = CopyWithCube(tmp_path).prove("numpy")
    for test in (
        "test_backend_has_every_op_with_the_arguments_of_the_protocol[cube] PASSED",
        "test_values_are_those_of_numpy[cube-float32] PASSED",
        "test_values_are_those_of_numpy[cube-float64] PASSED",
        "test_gradients_are_the_finite_differences_of_numpy[cube] PASSED",
    ):
        assert test in said


WORDS = {
    *("abs", "clip", "linear", "matmul", "max", "maximum", "mean", "min", "norm", "ones", "power", "relu"),
    *("scan", "shape", "sigmoid", "split", "square", "sum", "take", "tanh", "var", "where", "zeros"),
}
"""Names of ops that mean something else in other files: settings, attributes, activations, operators of Python."""
OPTIONAL = {"onnx/ops.py", "testing/op_cases.py"}
"""They may name ops: nodes of ONNX graphs, and calls that the rule of an op does not say."""


def sources() -> Iterator[tuple[str, Path]]:
    """The Python files of the core, and of our backends that are installed, by their names in the package."""
    folders = [Path(plugrad.__file__).parent]
    for entry, _ in entries("backend"):
        package = entry.value.partition(":")[0].partition(".")[0]
        beside = folders[0].parents[1] / "backends" / package
        folders += [each for each in (folders[0].parent / package, beside) if each.is_dir()]
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            yield path.relative_to(folder).as_posix(), path


def test_no_other_file_names_an_op() -> None:
    """As a string: a list of ops, or a branch by their names, would have to be kept in step with `Ops`."""
    names, found = {*RULES} - WORDS, []
    for name, path in sources():
        text = path.read_text()
        if name in OPTIONAL or not any(f'"{each}"' in text for each in names):
            continue
        tree = ast.parse(text)
        own = {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
        strings = {each.value for each in ast.walk(tree) if isinstance(each, ast.Constant)}
        found += [f"{name}: {each}" for each in sorted(strings & names - own)]
    assert found == []


@pytest.mark.parametrize("op", RULES)
def test_a_rule_is_about_the_arguments_of_its_op(op: str) -> None:
    """So that a name that is written wrong does not leave an argument unchecked."""
    rule, arguments = RULES[op], set(inspect.signature(getattr(Ops, op)).parameters)
    assert {*rule.tensors, *rule.numbers, *rule.others, *rule.example} <= arguments
    assert {*rule.numbers} <= {*rule.tensors}
    assert rule.gives in {"", "dtype", "bool", "int64", "float32"}
