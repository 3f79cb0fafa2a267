"""The learner has a type wherever a function takes one."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("core", "backends", "plugins", "tests/author")


def learners_in(source: str) -> list[str]:
    """The annotations of all arguments that are called learner."""
    functions = [
        each
        for each in ast.walk(ast.parse(source))
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    arguments = [
        argument
        for each in functions
        for argument in (*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs)
        if argument.arg in ("learner", "_learner")
    ]
    return [ast.unparse(each.annotation) if each.annotation else "" for each in arguments]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_argument_that_is_a_learner_is_any(folder):
    found = {
        str(path.relative_to(ROOT)): annotations
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "tests" not in path.relative_to(ROOT / folder).parts
        and (annotations := learners_in(path.read_text(encoding="utf-8")))
    }
    assert len(found) > 1
    assert [path for path, annotations in found.items() if not all(map(is_typed, annotations))] == []


def is_typed(annotation: str) -> bool:
    quoted = [each.value for each in ast.walk(ast.parse(annotation)) if isinstance(each, ast.Constant)]
    whole = " | ".join([annotation, *(each for each in quoted if isinstance(each, str))])
    names = {each.id for each in ast.walk(ast.parse(whole)) if isinstance(each, ast.Name)}
    return bool(names) and "Any" not in names


def test_what_has_no_type_is_noticed():
    assert learners_in("def f(learner: Any, x): ...\ndef g(*, learner): ...") == ["Any", ""]
    assert not is_typed("Any")
    assert not is_typed("")
    assert is_typed("LearnerProtocol")
    assert is_typed("'Learner'")
    assert not is_typed("'Any'")
