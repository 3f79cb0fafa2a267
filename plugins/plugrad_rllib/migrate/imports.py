"""Imports of RLlib, and what only RLlib needs: decorators, mixins, `try_import_torch`, `ray.init`."""

import ast
from collections import Counter, defaultdict
from collections.abc import Sequence

import libcst as cst

from plugrad_rllib.migrate import environments
from plugrad_rllib.migrate.code import code, expression_statement, is_unused, name_of
from plugrad_rllib.migrate.names import (
    CATALOGS,
    CONSTANTS,
    DEFAULT_MODULES,
    HERE,
    INSTEAD,
    NOT_NEEDED,
    OF_TARGET_NETWORKS,
    REWRITTEN,
)
from plugrad_rllib.migrate.notes import PAGE
from plugrad_rllib.migrate.program import OF_RLLIB, Program

RAY_CALLS = ("ray.init", "ray.shutdown")
VALUES = """def forward_train(self, batch, **kwargs):
    outputs = super().forward_train(batch, **kwargs)
    values = self.compute_values(batch, embeddings=outputs.get(Columns.EMBEDDINGS))
    return {**outputs, Columns.VF_PREDS: values}
"""
"""RLlib's losses ask a `ValueFunctionAPI` for values; plugrad's read a column."""
_OF_RAY = {"import ray": "ray", "from ray import tune": "tune", "from ray import air, tune": "tune"}
_UNKNOWN = "{name} has no counterpart that plugrad migrate knows"
_OF_EXAMPLES = "{name} is of RLlib's examples: copy it into your program, and migrate it, too"


def rewrite(program: Program, node: cst.ImportFrom, line: int) -> cst.ImportFrom | cst.RemovalSentinel:
    """Take RLlib's names out of an import; what replaces them is in `program.needed`.

    Args:
        program: what is known of the file.
        node: a part of its tree.
        line: where it stood, from 1.

    Returns:
        What takes its place.
    """
    module = code(node.module) if node.module is not None else ""
    if module == "ray" and not isinstance(node.names, cst.ImportStar):
        _note_ray(program, node.names, line)
        return _without_unused_parts(program, node)
    if not OF_RLLIB.match(module) or isinstance(node.names, cst.ImportStar):
        return node
    kept = [alias for alias in node.names if not _is_replaced(program, module, alias, line)]
    if not kept:
        return cst.RemoveFromParent()
    last = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return node.with_changes(names=[*kept[:-1], last])


def _is_replaced(program: Program, module: str, alias: cst.ImportAlias, line: int) -> bool:
    name = code(alias.name)
    local = code(alias.asname.name) if alias.asname is not None else name
    if name in HERE:
        program.needed.add((*HERE[name], local))
    elif name in CATALOGS | DEFAULT_MODULES and local not in program.bases:
        pass  # it goes with the arguments of RLModuleSpec
    elif name in INSTEAD:
        text, page = INSTEAD[name]
        program.notes.add(line, f"{name}: {text}", page)
        if name != "MultiAgentEnv":
            return False
    elif name not in {*NOT_NEEDED, *REWRITTEN, *CONSTANTS}:
        if not module.startswith("ray.tune"):
            is_example = module.startswith("ray.rllib.examples")
            program.notes.add(line, (_OF_EXAMPLES if is_example else _UNKNOWN).format(name=name))
        return False
    if name not in HERE:
        program.removed[local] = (module, name, line)
    return True


def restore(program: Program, text: str) -> bool:
    """Keep the imports of RLlib's names that the new program still uses, and note where.

    Args:
        program: what is known of the file; what it still uses is `needed` afterwards.
        text: the new program.

    Returns:
        Whether there are any.
    """
    used = Counter(
        node.id
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Name) and node.id in program.removed
    )
    for local, number in used.items():
        module, name, line = program.removed[local]
        program.needed.add((module, name, local))
        lines = program.uses.get(local, [])
        text, page = INSTEAD.get(name, ("plugrad has no such name", PAGE))
        for each in lines if len(lines) == number else [line]:  # the others were rewritten
            program.notes.add(each, f"{name} of RLlib is used here, and was left: {text}", page)
    return bool(used)


def _note_ray(program: Program, names: Sequence[cst.ImportAlias], line: int) -> None:
    """Note `from ray import train, tune` where something of it is used, but for what is rewritten."""
    for alias in names:
        name = code(alias.asname.name) if alias.asname is not None else code(alias.name)
        used = program.ray_calls.get(name)
        if used is not None and not program.is_tuned:
            text = (
                f"{name}.{used}: what Ray Tune runs here is tune.Tuner(trainable(config), ...); see the page"
            )
            program.notes.add(line, text, "docs/ray-tune.md")


def _without_unused_parts(program: Program, node: cst.ImportFrom) -> cst.ImportFrom | cst.RemovalSentinel:
    """`from ray import tune` goes where `tune` only registered environments, which are functions now."""
    assert not isinstance(node.names, cst.ImportStar)
    kept = []
    for alias in node.names:
        name = code(alias.asname.name) if alias.asname is not None else code(alias.name)
        number = program.registering[name]
        if not number or number < len(program.uses.get(name, ())):
            kept.append(alias)
    if len(kept) == len(node.names):
        return node
    if not kept:
        return cst.RemoveFromParent()
    return node.with_changes(names=[*kept[:-1], kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)])


def without_decorator(program: Program, node: cst.Decorator) -> cst.Decorator | cst.RemovalSentinel:
    """Take out `@override(...)` and its like.

    Args:
        program: what is known of the file.
        node: a part of its tree.

    Returns:
        What takes its place.
    """
    marked = node.decorator.func if isinstance(node.decorator, cst.Call) else node.decorator
    name = name_of(marked)
    return cst.RemoveFromParent() if program.imported.get(name or "") in NOT_NEEDED else node


def without_bases(program: Program, node: cst.ClassDef, line: int) -> cst.ClassDef:
    """Take out RLlib's mixins, `MultiAgentEnv`, and what makes target networks.

    Args:
        program: what is known of the file.
        node: a part of its tree.
        line: where it stood, from 1.

    Returns:
        What takes its place.
    """
    of_rllib = {program.imported.get(name_of(each.value) or "") for each in node.bases}
    if "ValueFunctionAPI" in of_rllib:
        program.needed.add(("plugrad", "Columns", "Columns"))
        values = cst.ensure_type(cst.parse_statement(VALUES), cst.FunctionDef)
        values = values.with_changes(leading_lines=[cst.EmptyLine(indent=False)])
        node = node.with_changes(body=node.body.with_changes(body=[*node.body.body, values]))
    if "TargetNetworkAPI" in of_rllib:
        gone = [
            each.name.value
            for each in node.body.body
            if isinstance(each, cst.FunctionDef) and each.name.value in OF_TARGET_NETWORKS
        ]
        if gone:
            text = (
                f"class {node.name.value}: {', '.join(gone)} was deleted: plugrad keeps target networks itself; "
                "which parameters have them is get_target_parameters of the algorithm"
            )
            program.notes.add(line, text, "docs/off-policy.md")
        body = [
            each
            for each in node.body.body
            if not (isinstance(each, cst.FunctionDef) and each.name.value in OF_TARGET_NETWORKS)
        ]
        node = node.with_changes(body=node.body.with_changes(body=body))
    if "MultiAgentEnv" in of_rllib:
        node = node.with_changes(body=environments.with_possible_agents(node.body))
    removed = {*NOT_NEEDED, "MultiAgentEnv"}
    bases = [each for each in node.bases if program.imported.get(name_of(each.value) or "") not in removed]
    if len(bases) == len(node.bases):
        return node
    if not bases:
        return node.with_changes(bases=[], lpar=cst.MaybeSentinel.DEFAULT, rpar=cst.MaybeSentinel.DEFAULT)
    return node.with_changes(bases=[*bases[:-1], bases[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)])


def framework_import(
    program: Program, node: cst.SimpleStatementLine, line: int
) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement] | None:
    """`torch, nn = try_import_torch()` and `_, tf, _ = try_import_tf()` as plain imports.

    Args:
        program: what is known of the file.
        node: a part of its tree.
        line: where it stood, from 1.

    Returns:
        What takes its place; None: it stays.
    """
    (statement,) = node.body
    if not (isinstance(statement, cst.Assign) and isinstance(statement.value, cst.Call)):
        return None
    function = program.imported.get(name_of(statement.value.func) or "")
    if function not in ("try_import_tf", "try_import_torch"):
        return None
    target = statement.targets[0].target
    names = (
        [code(each.value) for each in target.elements] if isinstance(target, cst.Tuple) else [code(target)]
    )
    if function == "try_import_tf":  # TensorFlow 1's interface, TensorFlow, and the version
        tf = names[1] if len(names) > 1 else names[0]
        lines = [f"import tensorflow as {tf}"]
    else:
        torch, *rest = names
        lines = [f"import torch{'' if torch == 'torch' else f' as {torch}'}"] if torch != "_" else []
        lines += [f"from torch import nn{'' if nn == 'nn' else f' as {nn}'}" for nn in rest if nn != "_"]
    parsed = [cst.parse_statement(each) for each in lines]
    return cst.FlattenSentinel([parsed[0].with_changes(leading_lines=node.leading_lines), *parsed[1:]])


def ray_call(
    program: Program, node: cst.SimpleStatementLine, line: int
) -> cst.BaseStatement | cst.RemovalSentinel | None:
    """Take out `ray.init()`: plugrad starts Ray where learners need it.

    Args:
        program: what is known of the file.
        node: a part of its tree.
        line: where it stood, from 1.

    Returns:
        What takes its place; None: it stays.
    """
    call = expression_statement(node)
    if call is None or code(call.func) not in RAY_CALLS:
        return None
    return cst.RemoveFromParent()


def add(module: cst.Module, program: Program) -> cst.Module:
    """Add what a rewritten program imports, and its own config classes; take out `ray` where nothing uses it.

    Args:
        module: the rewritten tree.
        program: what is known of the file.

    Returns:
        What takes its place.
    """
    kept = _without_unused_ray(module)
    by_module: dict[str, list[str]] = defaultdict(list)
    for home, name, local in sorted(program.needed):
        by_module[home].append(name if name == local else f"{name} as {local}")
    standard: list[cst.SimpleStatementLine | cst.BaseCompoundStatement] = []
    ours: list[cst.SimpleStatementLine | cst.BaseCompoundStatement] = []
    for home, names in sorted(by_module.items()):
        line = cst.parse_statement(f"from {home} import {', '.join(names)}")
        (ours if home.startswith("plugrad") else standard).append(line)
    first = next((n for n, each in enumerate(kept) if not _is_docstring_or_future(each)), len(kept))
    last = max((n for n, each in enumerate(kept) if _is_import(each)), default=first - 1) + 1
    own = [_own_config(program, base) for base in _own_bases(program)]
    blank = [cst.EmptyLine(indent=False)]
    above = bool(kept[:first] or module.header)
    for group, follows in ((standard, above), (ours, above or standard or kept[first:last])):
        if group and follows:
            group[0] = group[0].with_changes(leading_lines=blank)
    return module.with_changes(body=[*kept[:first], *standard, *kept[first:last], *ours, *own, *kept[last:]])


def _own_bases(program: Program) -> list[str]:
    if not program.own_settings:
        return []
    return sorted(
        {local for _, name, local in program.needed if name.endswith("Config") and name != "AlgorithmConfig"}
    )


def _own_config(program: Program, base: str) -> cst.BaseCompoundStatement | cst.SimpleStatementLine:
    fields = "".join(f"    {name}: {_type(each)} = {each}\n" for name, each in program.own_settings.items())
    text = f"@dataclass(frozen=True, kw_only=True)\nclass Own{base}({base}):\n{fields}"
    return cst.parse_statement(text).with_changes(leading_lines=[cst.EmptyLine(indent=False)] * 2)


def _type(default: str) -> str:
    if default in ("True", "False"):
        return "bool"
    if default[:1] in "'\"":
        return "str"
    return "int" if default.lstrip("-").isdigit() else "float"


def _is_docstring_or_future(node: cst.CSTNode) -> bool:
    if not isinstance(node, cst.SimpleStatementLine):
        return False
    first = node.body[0]
    if isinstance(first, cst.ImportFrom):
        return first.module is not None and code(first.module) == "__future__"
    return isinstance(first, cst.Expr) and isinstance(first.value, cst.SimpleString)


def _is_import(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.SimpleStatementLine) and isinstance(node.body[0], cst.Import | cst.ImportFrom)


def _without_unused_ray(module: cst.Module) -> list[cst.SimpleStatementLine | cst.BaseCompoundStatement]:
    """The statements of a module but for those that only import `ray` or `tune` where nothing uses it."""
    imports = {n: _OF_RAY.get(code(each)) for n, each in enumerate(module.body) if _is_import(each)}
    named = {name for name in imports.values() if name is not None}
    source = module.code if named else ""  # the text of the whole program takes as long as the rewriting
    unused = {name for name in named if is_unused(name, source)}
    return [each for n, each in enumerate(module.body) if imports.get(n) not in unused]
