"""One program for RLlib's new API stack as one for plugrad, with its comments and its layout."""

import ast
from typing import TYPE_CHECKING

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from plugrad_rllib.migrate import (
    algorithms,
    callbacks,
    configs,
    connectors,
    environments,
    example_helper,
    imports,
    modules,
    own_classes,
    policies,
    results,
    saved_modules,
    specs,
    tuning,
)
from plugrad_rllib.migrate.code import in_parentheses, name_of, without_parentheses
from plugrad_rllib.migrate.names import OF_ENV_CONTEXTS, PARTS_OF_MODULES
from plugrad_rllib.migrate.notes import Note
from plugrad_rllib.migrate.program import Program, read_program

if TYPE_CHECKING:
    from libcst import BaseExpression, FlattenSentinel, RemovalSentinel

Statement = cst.BaseStatement
_NO_PROGRAM = "nothing was changed: rewritten, the program would be no Python ({found}): rewrite it by hand"
_TOO_DEEP = (
    "nothing was changed: its expressions are nested too deeply for plugrad migrate: rewrite it by hand"
)
_WHOLE = "this import of a module of RLlib was left, since the program uses more of it: import the names that it uses"
_OWN = ("env_runner", "self")
"""What has such numbers itself: the env runner of a callback, and an object that keeps one."""
MAX_DEPTH = 1000
"""Levels of a program's tree; Python's own limit is not much higher."""


def migrate(source: str) -> tuple[str, list[Note]]:
    """Rewrite a program.

    Args:
        source: its text.

    Returns:
        The new text, equal to the old one where nothing of RLlib is used, and what it could not do, by lines. It is
        always a program: if the new text were none, the old one stays.

    Raises:
        SyntaxError: it is no Python.
    """
    try:
        tree = ast.parse(source)
        program = None
        if not _is_too_deep(tree):
            given, left = modules.by_names(source) if "rllib" in source else (source, [])
            program = read_program(ast.parse(given))
    except (RecursionError, MemoryError):  # of Python's parser, too
        program = None
    if program is None:
        return source, [Note(1, _TOO_DEEP)] if "ray" in source else []
    if not program.imported and "ray" not in source:
        return source, []
    try:
        for line in left:
            program.notes.add(line, _WHOLE)
        module = MetadataWrapper(cst.parse_module(given)).visit(_Rewriter(program))
        text = imports.add(module, program).code
        if imports.restore(program, text):
            text = imports.add(module, program).code
    except (SyntaxError, cst.ParserSyntaxError) as error:
        found = error.msg if isinstance(error, SyntaxError) else error.message
        return source, [Note(1, _NO_PROGRAM.format(found=found))]
    except RecursionError:
        return source, [Note(1, _TOO_DEEP)]
    return text, sorted(program.notes.found)


def _is_too_deep(tree: ast.AST) -> bool:
    """Whether libcst's parser, which is no Python, might overflow its stack; it nests `a and b` and `a.b`, too."""
    level, depth = [tree], 0
    while level and depth <= MAX_DEPTH:
        depth += 1
        level = [inner for node in level for inner in ast.iter_child_nodes(node)]
        for node in level:
            if isinstance(node, ast.BoolOp) and len(node.values) > MAX_DEPTH:
                return True
            if isinstance(node, ast.alias) and node.name.count(".") > MAX_DEPTH:
                return True
    return depth > MAX_DEPTH


class _Rewriter(cst.CSTTransformer):
    """All rewritings in one pass; each is a function that returns what it is given where it has nothing to do."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program

    def line(self, node: cst.CSTNode) -> int:
        """The line of a node of the program as it was; of a method's call in a chain, that of the method's name."""
        named = (
            node.func.attr if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) else node
        )
        return int(self.get_metadata(PositionProvider, named).start.line)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        """Leave the names of imports alone; see libcst."""
        return False

    def leave_ImportFrom(
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> "cst.ImportFrom | RemovalSentinel":
        """Rewrite an import; see libcst."""
        return imports.rewrite(self.program, updated_node, self.line(original_node))

    def leave_Decorator(
        self, original_node: cst.Decorator, updated_node: cst.Decorator
    ) -> "cst.Decorator | RemovalSentinel":
        """Take out RLlib's decorators; see libcst."""
        return imports.without_decorator(self.program, updated_node)

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        """Take out RLlib's mixins; see libcst."""
        methods = [each for each in original_node.body.body if isinstance(each, cst.FunctionDef)]
        line_of = {each.name.value: self.line(each) for each in methods}
        callbacks.note(self.program, original_node, line_of)
        own_classes.note(self.program, original_node, line_of, self.line(original_node))
        return imports.without_bases(self.program, updated_node, self.line(original_node))

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> "cst.FunctionDef | RemovalSentinel":
        """Take out functions that only made connectors; see libcst."""
        is_gone = connectors.is_replaced(self.program, original_node.name.value)
        return cst.RemoveFromParent() if is_gone else updated_node

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> "BaseExpression":
        """Replace names of metrics; see libcst."""
        found = results.constant(self.program, without_parentheses(updated_node))
        whole = specs.without_class(self.program, found) if isinstance(found, cst.Name) else found
        return in_parentheses(whole, updated_node)

    def leave_FormattedStringExpression(
        self, original_node: cst.FormattedStringExpression, updated_node: cst.FormattedStringExpression
    ) -> cst.BaseFormattedStringContent:
        """Replace names of metrics in strings; see libcst."""
        return results.text_in_string(original_node, updated_node)

    def leave_FormattedString(
        self, original_node: cst.FormattedString, updated_node: cst.FormattedString
    ) -> "BaseExpression":
        """Give keys in strings the other quotation marks; see libcst."""
        return results.with_other_quotes(original_node, updated_node)

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> "BaseExpression":
        """Rewrite keys; see libcst."""
        found = configs.own_setting(without_parentheses(updated_node))
        return in_parentheses(results.read(self.program, found, self.line(original_node)), updated_node)

    def visit_Attribute(self, node: cst.Attribute) -> None:
        """Note parts of RLlib's default modules, and of its algorithms; see libcst."""
        algorithms.note(self.program, node, self.line(node))
        own_classes.note_member(self.program, node, self.line(node))
        if node.attr.value in OF_ENV_CONTEXTS and name_of(node.value) not in _OWN:
            text = (
                f".{node.attr.value}: env_config is a dict, which numbers no environments: let each simulator take "
                "a free port (bind it to port 0) and a temporary folder of its own"
            )
            self.program.notes.add(self.line(node), text, "docs/your-simulator.md")
        if node.attr.value in PARTS_OF_MODULES:
            text = f".{node.attr.value}: built-in modules have no such part; take parameters by name"
            self.program.notes.add(self.line(node), text, "docs/networks.md")

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> "BaseExpression":
        """Replace names of columns, and take the path from what saving returned; see libcst."""
        game = environments.is_atari(self.program, without_parentheses(updated_node))
        if game is not None:
            return in_parentheses(game, updated_node)
        found = results.column(self.program, without_parentheses(updated_node))
        whole = algorithms.saved_path(found)
        setting = configs.read_setting(whole) if isinstance(whole, cst.Attribute) else whole
        return in_parentheses(setting, updated_node)

    def leave_BinaryOperation(
        self, original_node: cst.BinaryOperation, updated_node: cst.BinaryOperation
    ) -> "BaseExpression":
        """Take parts of checkpoints out of paths; see libcst."""
        node = without_parentheses(updated_node)
        found = algorithms.whole_checkpoint(self.program, original_node, node, self.line(original_node))
        return in_parentheses(found, updated_node)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> "BaseExpression":
        """Rewrite configs, algorithms and environments; see libcst."""
        line = self.line(original_node)
        call = without_parentheses(updated_node)
        if self.program.imported.get(name_of(original_node.func) or "") == "DefaultModelConfig":
            return in_parentheses(configs.model_config(self.program, call, line), updated_node)
        found = environments.unwrapped(self.program, call)
        if isinstance(found, cst.Call):
            found = tuning.tuner(self.program, original_node, found, line)
            found = policies.by_name(self.program, found, line)
            found = specs.rewrite(self.program, found, line) if isinstance(found, cst.Call) else found
        if isinstance(found, cst.Call):
            found = configs.own_setting_or(self.program, found)
        found = saved_modules.rewrite(self.program, original_node, found, line)
        found = results.read(self.program, algorithms.rewrite(self.program, found, line), line)
        return in_parentheses(configs.rewrite(self.program, found, line), updated_node)

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> "Statement | FlattenSentinel[Statement] | RemovalSentinel":
        """Rewrite what stands on a line of its own; see libcst."""
        if len(updated_node.body) != 1:
            return updated_node
        line = self.line(original_node)
        for rewriting in (
            connectors.without_function,
            environments.as_function,
            imports.framework_import,
            imports.ray_call,
            configs.kept_result,
            configs.assigned_setting,
            example_helper.rewrite,
        ):
            found = rewriting(self.program, updated_node, line)
            if found is not None:
                return found
        return updated_node
