"""What backends share, on the reference backend."""

import numpy as np
import pytest

from plugrad.errors import OptimizerError
from plugrad.hooks.backend_helpers import (
    calling_lines,
    check_is_optimizer,
    check_params,
    converted,
    default_dtype,
    find_param_ref,
    first_line,
    functional_call_by_ref,
    where_installed,
)
from plugrad.hooks.backend_spec import BackendInfo, Capability, Program
from plugrad.optimizers import Adam
from plugrad.testing.numpy_module import ArrayVariable
from plugrad.testing.tiny_learners import tiny_learner


@pytest.fixture
def learner():
    return tiny_learner("numpy", modules=("a", "b"))


def test_a_parameter_is_named_by_its_module_and_its_name(learner):
    names = [f"{m}/{name}" for m in ("a", "b") for name in learner.module[m].named_weights()]
    params = [param for m in ("a", "b") for param in learner.module[m].named_weights().values()]
    assert [find_param_ref(learner, param) for param in params] == names
    with pytest.raises(OptimizerError, match=r"a parameter of shape \(2,\) belongs to no module"):
        find_param_ref(learner, ArrayVariable([1.0, 2.0]))


def test_modules_compute_with_other_tensors_by_name_until_the_end(learner):
    params = [next(iter(learner.module[m].named_weights().values())) for m in ("a", "b")]
    before = [param.numpy() for param in params]
    refs = [find_param_ref(learner, param) for param in params]
    call = functional_call_by_ref(learner, refs, params)
    with call(
        {ref: np.full(param.shape, n) for n, (ref, param) in enumerate(zip(refs, params, strict=True))}
    ):
        for n, param in enumerate(params):
            np.testing.assert_array_equal(param.numpy(), n)
    for param, value in zip(params, before, strict=True):
        np.testing.assert_array_equal(param.numpy(), value)


@pytest.mark.parametrize("wrong", [[], (ArrayVariable(1.0),), [1.0], None])
def test_params_are_a_list_of_parameters(wrong):
    check_params([ArrayVariable(1.0)], ArrayVariable, "ArrayVariable")
    with pytest.raises(OptimizerError, match=f"list of ArrayVariable, found {type(wrong).__name__}"):
        check_params(wrong, ArrayVariable, "ArrayVariable")


def test_what_is_no_optimizer_is_refused_by_its_class():
    check_is_optimizer(Adam())
    with pytest.raises(OptimizerError, match=r"^dict is no optimizer of plugrad.optimizers$"):
        check_is_optimizer({})
    with pytest.raises(OptimizerError, match=r"plugrad\.optimizers and no mine\.Optimizer"):
        check_is_optimizer({}, "mine.Optimizer")


@pytest.mark.parametrize(
    ("value", "dtype"), [(1.5, "float32"), (2, "int32"), (np.uint8(3), "int32"), (True, "bool")]
)
def test_a_variable_without_a_dtype_has_that_of_its_kind(value, dtype):
    assert default_dtype(value) == dtype


def test_an_errors_first_line():
    assert first_line(ValueError("\none\ntwo")) == "one"
    assert first_line(ValueError()) == "no message"


def test_lines_begin_with_who_called_the_caller():
    def caller():
        return calling_lines()

    file, _ = caller()[0]
    assert file == __file__


def test_a_program_that_falls_back_says_so(caplog):
    program = Program("complete_update", "compiled", static_shapes=True)
    program.fall_back("none", "eager, because of a test")
    assert (program.mode, program.reason) == ("none", "eager, because of a test")
    assert "update mode none: eager, because of a test" in caplog.text


def test_what_is_not_installed_is_the_reason(learner):
    conditions = {
        Capability.USER_MODULES: where_installed("no_such_package", "mine[models]"),
        Capability.FRAMEWORK_OPTIMIZERS: where_installed("numpy", "mine[models]"),
    }
    info = BackendInfo("mine", "1", capabilities=conditions)
    words = [info.why_not(each, learner.ops, learner.config) for each in conditions]
    assert words == [
        "backend 'mine' has no 'user_modules' here: no_such_package is missing: pip install \"mine[models]\"",
        "",
    ]


def test_a_tree_is_converted_leaf_by_leaf():
    tree = {"a": (1, {"b": 2}), "c": [3]}
    assert converted(tree, lambda leaf: 10 * leaf) == {"a": [10, {"b": 20}], "c": [30]}
