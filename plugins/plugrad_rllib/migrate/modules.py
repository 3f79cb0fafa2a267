"""Modules of RLlib that a program imports whole: `ppo.PPOConfig` becomes `PPOConfig`, before anything else is read."""

import ast
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import libcst as cst

from plugrad_rllib.migrate.code import code

_Import = TypeVar("_Import", cst.Import, cst.ImportFrom)
_RLLIB = "ray.rllib"
_IN_MODULE = re.compile(r"(?P<inner>(?:\.[a-z_0-9]+)*)\.(?P<name>[A-Z]\w*)")
"""What follows a module: modules inside of it, and a class or constant."""


def by_names(source: str) -> tuple[str, list[int]]:
    """Import the names that a program uses in place of the modules of RLlib that it imports.

    Args:
        source: a program.

    Returns:
        The program, with everything in its line; and the lines of imports that stayed, since the program uses something
        else of the module, or has a name like one of the module's.
    """
    found = _read(ast.parse(source))
    if not found.modules:
        return source, []
    text = cst.parse_module(source).visit(_Rewriter(found)).code if found.names else source
    return text, sorted({line for called, line in found.modules.items() if line and found.is_used(called)})


@dataclass
class _Found:
    """What a program uses of modules of RLlib.

    Attributes:
        modules: `{what a module is called: the line that imports it}`, such as `{"ppo": 1}` or `{"ray.rllib": 1}`; 0
            where `import ray` does.
        names: `{"ppo.PPOConfig": ("ppo", "ray.rllib.algorithms.ppo", "PPOConfig")}`.
        others: how often the program reads a variable other than by these names.
    """

    modules: dict[str, int] = field(default_factory=dict)
    names: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    others: Counter[str] = field(default_factory=Counter)

    def is_used(self, called: str) -> bool:
        return self.others[called.partition(".")[0]] > 0


def _read(tree: ast.Module) -> _Found:
    found = _Found()
    full: dict[str, str] = {}
    own: set[str] = set()
    used: set[str] = set()  # what has no such names may be a function, such as try_import_torch
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            _look_at_import(node, found, full)
        elif isinstance(node, ast.Name):
            found.others[node.id] += 1
            if not isinstance(node.ctx, ast.Load):
                own.add(node.id)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            own.add(node.name)
    for node in ast.walk(tree):
        text = _text(node)
        for called, module in full.items():
            match = _IN_MODULE.fullmatch(text.removeprefix(called)) if text.startswith(f"{called}.") else None
            if match:
                used.add(called)
            if match and match["name"] not in own:
                found.names[text] = (called, module + match["inner"], match["name"])
                found.others[called.partition(".")[0]] -= 1
                found.modules.setdefault(called, 0)
    found.modules = {called: line for called, line in found.modules.items() if called in used}
    return found


def _look_at_import(node: ast.Import | ast.ImportFrom, found: _Found, full: dict[str, str]) -> None:
    """Add the modules of RLlib of an import to what was found, and what each is in full."""
    inside = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    for alias in node.names:
        name = inside + alias.name
        is_whole = name.startswith(f"{_RLLIB}.") or name == _RLLIB
        if is_whole and alias.name.rpartition(".")[2].islower():
            called = alias.asname or (alias.name if inside else _RLLIB)
            found.modules[called] = node.lineno
            full[called] = name if alias.asname or inside else _RLLIB
        elif name == "ray" and alias.asname is None:
            full[_RLLIB] = _RLLIB


def _text(node: ast.AST | cst.CSTNode) -> str:
    """`a.b` of an expression that is nothing but names and dots, else an empty text."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute | cst.Attribute):
        parts.append(node.attr if isinstance(node, ast.Attribute) else node.attr.value)
        node = node.value
    if not isinstance(node, ast.Name | cst.Name):
        return ""
    return ".".join([node.id if isinstance(node, ast.Name) else node.value, *reversed(parts)])


class _Rewriter(cst.CSTTransformer):
    def __init__(self, found: _Found) -> None:
        self.found = found

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """Take the module from a name; see libcst."""
        found = self.found.names.get(_text(updated_node))
        return updated_node if found is None else cst.Name(found[2])

    def leave_Import(
        self, original_node: cst.Import, updated_node: cst.Import
    ) -> cst.Import | cst.FlattenSentinel[cst.BaseSmallStatement]:
        """Import names; see libcst."""
        return self._with_names(updated_node, updated_node.names, "")

    def leave_ImportFrom(
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.ImportFrom | cst.FlattenSentinel[cst.BaseSmallStatement]:
        """Import names; see libcst."""
        if isinstance(updated_node.names, cst.ImportStar) or updated_node.module is None:
            return updated_node
        return self._with_names(updated_node, updated_node.names, f"{code(updated_node.module)}.")

    def _with_names(
        self, node: _Import, names: Sequence[cst.ImportAlias], inside: str
    ) -> _Import | cst.FlattenSentinel[cst.BaseSmallStatement]:
        """An import without the modules that the program no longer uses, and beside it the names that it does."""
        kept: list[cst.ImportAlias] = []
        added: set[tuple[str, str]] = set()
        for alias in names:
            name = code(alias.name)
            called = code(alias.asname.name) if alias.asname is not None else name if inside else _RLLIB
            is_of_rllib = f"{inside}{name}".startswith("ray")
            used = {(module, name) for one, module, name in self.found.names.values() if one == called}
            if is_of_rllib and used:
                added |= used
            if not (is_of_rllib and used) or name == "ray" or self.found.is_used(called):
                kept.append(alias)
        if not added:
            return node
        statements: list[cst.BaseSmallStatement] = [
            cst.ImportFrom(_dotted(module), [cst.ImportAlias(cst.Name(name))])
            for module, name in sorted(added)
        ]
        if kept:
            statements.append(
                node.with_changes(names=[*kept[:-1], kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)])
            )
        return cst.FlattenSentinel(statements)


def _dotted(module: str) -> cst.Attribute | cst.Name:
    first, *rest = module.split(".")
    node: cst.Attribute | cst.Name = cst.Name(first)
    for each in rest:
        node = cst.Attribute(node, cst.Name(each))
    return node
