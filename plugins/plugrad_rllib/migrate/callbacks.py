"""Callbacks: `.callbacks(MyCallback)` becomes `.plugins(MyCallback)`, since a class of callbacks is a listener here."""

import libcst as cst

from plugrad_rllib.callbacks import CALLBACKS, NOT_CALLED
from plugrad_rllib.migrate.code import code, name_of
from plugrad_rllib.migrate.program import Program

BASES = frozenset({"DefaultCallbacks", "RLlibCallback"})
"""RLlib's classes of callbacks."""
_PAGE = "docs/listeners.md"


def of_config(program: Program, call: cst.Call, func: cst.Attribute, line: int) -> cst.BaseExpression:
    """`.callbacks(...)` of a config.

    Args:
        program: what is known of the file.
        call: the call.
        func: what it calls.
        line: where it stood, from 1.

    Returns:
        What takes its place.
    """
    classes: list[cst.BaseExpression] = []
    functions: list[cst.Arg] = []
    for each in call.args:
        name = None if each.keyword is None else each.keyword.value
        if name in (None, "callbacks_class"):
            classes += _parts(each.value)
        elif name in CALLBACKS:
            functions += [] if code(each.value) == "None" else [each]
        else:
            text = f"callbacks({name}=...) was deleted: {NOT_CALLED.get(name or '', 'nothing calls it')}"
            program.notes.add(line, text, _PAGE)
    if not classes and not functions:
        if isinstance(func.value, cst.Name) and call.args:
            text = "callbacks(None) was deleted: a config keeps its plugins: take the one from before .plugins(...)"
            program.notes.add(line, text, _PAGE)
        return func.value
    if functions or not all(_is_class(each) for each in classes):
        program.needed.add(("plugrad_rllib.callbacks", "callbacks", "callbacks"))
        made = [*(cst.Arg(each) for each in classes), *functions]
        made[-1] = made[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        given = [cst.Arg(cst.Call(cst.Name("callbacks"), made))]
    else:
        given = [cst.Arg(each) for each in classes]
    end = call.args[-1]
    given[-1] = given[-1].with_changes(comma=end.comma, whitespace_after_arg=end.whitespace_after_arg)
    return call.with_changes(func=func.with_changes(attr=cst.Name("plugins")), args=given)


def _parts(value: cst.BaseExpression) -> list[cst.BaseExpression]:
    if code(value) == "None":
        return []
    if isinstance(value, cst.List | cst.Tuple):
        return [each.value for each in value.elements]
    return [value]


def _is_class(value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.Name) and value.value[:1].isupper()


def note(program: Program, node: cst.ClassDef, line_of: dict[str, int]) -> None:
    """Note the methods of a callback class that nothing calls here.

    Args:
        program: what is known of the file.
        node: the class.
        line_of: the lines of its methods.
    """
    if not any(program.imported.get(name_of(each.value) or "") in BASES for each in node.bases):
        return
    for name, line in line_of.items():
        if name in NOT_CALLED:
            program.notes.add(line, f"{name}: nothing calls it here: {NOT_CALLED[name]}", _PAGE)
