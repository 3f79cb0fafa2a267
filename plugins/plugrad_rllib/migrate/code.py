"""Small functions over libcst's trees."""

import ast
import re
from typing import TypeVar

import libcst as cst

AnyExpression = TypeVar("AnyExpression", bound=cst.BaseExpression)


def code(node: cst.CSTNode) -> str:
    """The text of a node."""
    return cst.Module([]).code_for_node(node).strip()


def as_one(node: cst.BaseExpression) -> str:
    """The text of an expression that may stand before a dot and go over several lines."""
    text = code(node)
    is_one = node.lpar or isinstance(
        node, cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.SimpleString
    )
    return text if is_one and (node.lpar or "\n" not in text) else f"({text})"


def without_parentheses(node: AnyExpression) -> AnyExpression:
    """An expression without the parentheses around it."""
    return node.with_changes(lpar=(), rpar=())


def in_parentheses(node: cst.BaseExpression, replaced: cst.BaseExpression) -> cst.BaseExpression:
    """An expression in the parentheses of another, whose place it takes; within them lines may end anywhere.

    Args:
        node: an expression.
        replaced: the other one.

    Returns:
        The expression with both its parentheses and those of the other.
    """
    return node.with_changes(lpar=[*replaced.lpar, *node.lpar], rpar=[*node.rpar, *replaced.rpar])


def string(node: cst.BaseExpression) -> str | None:
    """The value of a string literal, else None."""
    if not isinstance(node, cst.SimpleString):
        return None
    value = ast.literal_eval(node.value)
    return value if isinstance(value, str) else None


def argument(call: cst.Call, keyword: str, position: int | None = None) -> cst.Arg | None:
    """An argument of a call, by its keyword or its position.

    Args:
        call: a call.
        keyword: its name.
        position: its place, or None if it has only a name.

    Returns:
        The argument, or None.
    """
    for n, each in enumerate(call.args):
        if each.keyword is not None and each.keyword.value == keyword:
            return each
        if each.keyword is None and not each.star and n == position:
            return each
    return None


def expression_statement(line: cst.SimpleStatementLine) -> cst.Call | None:
    """The call that a line of its own makes, else None."""
    (statement,) = line.body
    if isinstance(statement, cst.Expr) and isinstance(statement.value, cst.Call):
        return statement.value
    return None


def name_of(node: cst.BaseExpression) -> str | None:
    """`f` of `f` and of `package.module.f`, else None."""
    if isinstance(node, cst.Name):
        return node.value
    inner = node
    while isinstance(inner, cst.Attribute):
        inner = inner.value
    return node.attr.value if isinstance(node, cst.Attribute) and isinstance(inner, cst.Name) else None


def name_of_method(call: cst.Call) -> str | None:
    """`f` of `anything.f(...)`, else None."""
    return call.func.attr.value if isinstance(call.func, cst.Attribute) else None


def is_unused(name: str, source: str) -> bool:
    """Whether a module's name appears nowhere in a program but in imports.

    Args:
        name: of the module.
        source: the program.

    Returns:
        Whether nothing uses it.
    """
    lines = [line for line in source.splitlines() if not re.match(r"\s*(from|import)\b", line)]
    return not any(re.search(rf"\b{name}\.", line) for line in lines)
