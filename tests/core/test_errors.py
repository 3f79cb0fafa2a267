"""Every error crosses process borders with its facts, and is the builtin that its reader expects."""

import copy
import inspect
import pickle

import pytest

import plugrad.learner.update.optimizers
from plugrad import errors
from plugrad.errors import PlugradError, did_you_mean

BUILTINS = {
    "AlgorithmNotFoundError": LookupError,
    "BackendNotFoundError": LookupError,
    "BatchError": ValueError,
    "CheckpointCorruptError": OSError,
    "CheckpointError": OSError,
    "CheckpointLockedError": OSError,
    "CheckpointUnsafeError": OSError,
    "CheckpointVersionError": OSError,
    "ConfigError": ValueError,
    "EnvContractError": ValueError,
    "EnvWorkerError": RuntimeError,
    "LearnerGroupDeadError": RuntimeError,
    "CollectiveError": RuntimeError,
    "LearnerTimeoutError": TimeoutError,
    "LossError": ValueError,
    "MissingColumnError": KeyError,
    "MissingFrameworkError": LookupError,
    "NonFiniteBatchError": (ValueError, FloatingPointError),
    "NonFiniteError": FloatingPointError,
    "NotBuiltError": ValueError,
    "NotUndoneError": RuntimeError,
    "UnfinishedStepError": RuntimeError,
    "OptimizerError": ValueError,
    "PluginConflictError": ValueError,
    "PluginError": RuntimeError,
    "PortabilityError": TypeError,
    "QueueFullError": RuntimeError,
    "RestoreMismatchError": ValueError,
    "SpaceMismatchError": ValueError,
    "ResultError": ValueError,
    "UnknownModuleError": KeyError,
    "UnknownParameterError": KeyError,
    "UnknownOptimizerError": KeyError,
}
PARENTS = {
    "CheckpointCorruptError": "CheckpointError",
    "CheckpointLockedError": "CheckpointError",
    "CheckpointUnsafeError": "CheckpointError",
    "CheckpointVersionError": "CheckpointError",
    "MissingColumnError": "BatchError",
    "MissingFrameworkError": "BackendNotFoundError",
    "NonFiniteBatchError": "NonFiniteError",
    "UnknownModuleError": "BatchError",
    "UnknownParameterError": "OptimizerError",
    "UnknownOptimizerError": "OptimizerError",
}


def every_error() -> dict[str, type[PlugradError]]:
    """Those of `plugrad.errors` and of modules that have their own."""
    modules = (errors, plugrad.learner.update.optimizers)
    classes = [each for module in modules for each in vars(module).values() if inspect.isclass(each)]
    found = {each.__name__: each for each in classes if issubclass(each, PlugradError)}
    del found["PlugradError"]
    return found


ERRORS = every_error()
FACTS = {"module_id": "p", "column": "obs", "expected": [1, 2], "found": {"rows": 3}, "name": "x", "errno": 5}


def test_the_list_here_is_complete():
    assert set(ERRORS) == set(BUILTINS)


@pytest.mark.parametrize("name", BUILTINS)
def test_an_error_is_the_builtin_that_fits(name):
    builtins = BUILTINS[name] if isinstance(BUILTINS[name], tuple) else (BUILTINS[name],)
    for builtin in (PlugradError, *builtins):
        assert issubclass(ERRORS[name], builtin)
    assert issubclass(ERRORS[name], ERRORS[PARENTS.get(name, name)])


@pytest.mark.parametrize("name", BUILTINS)
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_arrives_with_its_words_and_facts(name, again):
    error = ERRORS[name]("module 'p': 3 \"rows\"\nfound", **FACTS)
    found = again(error)
    assert type(found) is ERRORS[name]
    assert str(found) == str(error) == "module 'p': 3 \"rows\"\nfound"
    assert found.facts == FACTS
    assert found.args == error.args


@pytest.mark.parametrize("name", BUILTINS)
def test_an_error_can_be_caught_by_its_base_and_shows_its_words(name):
    with pytest.raises(PlugradError, match=r"^words$") as caught:
        raise ERRORS[name]("words")
    assert caught.value.facts == {}
    assert f"{name}: words" in "".join(caught.exconly())


@pytest.mark.parametrize("name", BUILTINS)
def test_every_error_says_what_it_is_about(name):
    assert inspect.getdoc(ERRORS[name]) != inspect.getdoc(ERRORS[name].__mro__[1])


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("touch", ["tf2", "torch"], " Did you mean 'torch'?"),
        ("zzz", ["tf2", "torch"], ""),
        ("torch", [], ""),
        ("a", iter(["a"]), " Did you mean 'a'?"),
    ],
)
def test_the_closest_name_is_offered_if_there_is_one(name, known, hint):
    assert did_you_mean(name, known) == hint
