"""Configs: where a setting is set here, own settings of a learner, and calls whose result was dropped."""

import re

import libcst as cst

from plugrad.cli.migrate import environments
from plugrad.cli.migrate.code import code, expression_statement, name_of, string
from plugrad.cli.migrate.names import HAVE_RLLIB_DEFAULTS
from plugrad.cli.migrate.program import Program
from plugrad.cli.migrate.settings import GONE, MOVED, NO_SECTIONS, SECTIONS
from plugrad.config import SECTIONS as OURS
from plugrad.deprecation import hint_for
from plugrad.model_config import MODEL_SETTINGS

_DELETE = "delete it: "


def rewrite(program: Program, node: cst.BaseExpression, line: int) -> cst.BaseExpression:
    """Rewrite a call that makes, changes or builds a config.

    Args:
        program: what is known of the file.
        node: a part of its tree.
        line: where it stood, from 1.

    Returns:
        What takes its place.
    """
    if not isinstance(node, cst.Call):
        return node
    name = program.imported.get(name_of(node.func) or "")
    if name == "DefaultModelConfig":
        return _model_config(program, node, line)
    if name == "get_trainable_cls":
        program.needed.add(("plugrad", "get_algorithm", "get_algorithm"))
        which = node.args[0].value
        plain = string(which)
        short = f'"{plain.lower()}"' if plain is not None else f"{code(which)}.lower()"
        return cst.parse_expression(f"get_algorithm({short})")
    if name in HAVE_RLLIB_DEFAULTS and not node.args and isinstance(node.func, cst.Name):
        return cst.parse_expression(f"{program.own_config(node.func.value)}.rllib_defaults()")
    if not isinstance(node.func, cst.Attribute):
        return node
    method = node.func.attr.value
    if method == "get_default_config" and not node.args:
        return node.with_changes(func=node.func.with_changes(attr=cst.Name("rllib_defaults")))
    if method in ("build", "build_algo") and not node.args and _is_config(program, node.func.value):
        return node.with_changes(func=node.func.with_changes(attr=cst.Name("build_algo")))
    if method in SECTIONS and _is_config(program, node.func.value):
        return _section(program, node, node.func, line)
    return node


def _model_config(program: Program, call: cst.Call, line: int) -> cst.Call:
    """`DefaultModelConfig(...)` as a dict of what built-in networks have."""
    kept = []
    for each in call.args:
        name = each.keyword.value if each.keyword is not None else None
        if name is None or name in MODEL_SETTINGS:
            kept.append(each)
        else:
            program.notes.add(line, f"model_config has no {name}: it was deleted", "docs/networks.md")
    if kept and len(kept) < len(call.args):
        kept[-1] = kept[-1].with_changes(comma=call.args[-1].comma)
    return call.with_changes(func=cst.Name("dict"), args=kept)


def _is_config(program: Program, node: cst.BaseExpression) -> bool:
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        if node.func.attr.value in ("rllib_defaults", "get_default_config"):
            return True
        node = node.func.value
    name = name_of(node.func if isinstance(node, cst.Call) else node) or ""
    return name in program.configs or program.imported.get(name, "").endswith("Config")


def _section(program: Program, call: cst.Call, func: cst.Attribute, line: int) -> cst.BaseExpression:
    section = func.attr.value
    if section in NO_SECTIONS:
        if section != "api_stack":
            program.notes.add(line, f".{section}(...) was deleted: {NO_SECTIONS[section]}")
        return func.value
    if section not in OURS and section != "resources":
        program.notes.add(line, f"there is no .{section}(...)")
    if section == "environment":
        call = environments.of_config(program, call)
    here: list[cst.Arg] = []
    elsewhere: dict[str, list[cst.Arg]] = {}
    for each in call.args:
        for target, setting in _setting(program, section, each, line):
            (here if target == section else elsewhere.setdefault(target, [])).append(setting)
    node: cst.BaseExpression = func.value
    if here:  # the last one ends as the last one did, so that the layout stays
        end = call.args[-1]
        last = here[-1].with_changes(comma=end.comma, whitespace_after_arg=end.whitespace_after_arg)
        node = call.with_changes(args=[*here[:-1], last])
    elif not call.args:
        node = call
    for target, settings in elsewhere.items():
        method = cst.Attribute(node, cst.Name(target), dot=func.dot)
        node = cst.Call(method, [_plain(each) for each in settings])
    return node


def _plain(setting: cst.Arg) -> cst.Arg:
    return setting.with_changes(
        comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=cst.SimpleWhitespace("")
    )


def _setting(program: Program, section: str, arg: cst.Arg, line: int) -> list[tuple[str, cst.Arg]]:
    """Where one argument of a fluent call goes: `[(method, argument)]`."""
    if arg.keyword is None:
        return [(section, arg)]
    name = arg.keyword.value
    if name == "learner_config_dict":
        return _own_settings(program, arg, line)
    if name == "env_to_module_connector":
        return _connectors(program, arg, line)
    if name == "rollout_fragment_length" and string(arg.value) == "auto":
        return []  # it is the default
    if name == "learner_connector" and "FrameStackingLearner" in program.imported.values():
        return []  # frames are stacked once, by the env runner
    if (section, name) in MOVED:
        target, here = MOVED[section, name]
        return [(target, arg.with_changes(keyword=cst.Name(here)))]
    if name in GONE:
        program.notes.add(line, f"{section}({name}=...) was deleted: {GONE[name]}")
        return []
    hint = hint_for(name).removeprefix(" Here: ").removesuffix(".")
    if hint.startswith(_DELETE):
        program.notes.add(line, f"{section}({name}=...) was deleted: {hint.removeprefix(_DELETE)}")
        return []
    if hint:
        program.notes.add(line, f"{section}({name}=...): {hint}")
    return [(section, arg)]


def _own_settings(program: Program, arg: cst.Arg, line: int) -> list[tuple[str, cst.Arg]]:
    """`learner_config_dict={"a": 1}` as settings of a config class of the program's own."""
    if not isinstance(arg.value, cst.Dict):
        program.notes.add(line, "learner_config_dict: derive a config class with these fields")
        return []
    program.needed.add(("dataclasses", "dataclass", "dataclass"))
    pairs = [each for each in arg.value.elements if isinstance(each, cst.DictElement)]
    return [
        ("training", arg.with_changes(keyword=cst.Name(string(each.key) or code(each.key)), value=each.value))
        for each in pairs
    ]


def _connectors(program: Program, arg: cst.Arg, line: int) -> list[tuple[str, cst.Arg]]:
    """RLlib's connector pieces that are settings here; others are noted."""
    pieces = set(program.imported.values())
    found: list[tuple[str, cst.Arg]] = []
    if "MeanStdFilter" in pieces:
        found.append(_env_runner_setting(arg, "normalize_observations", "True"))
    if "FrameStackingEnvToModule" in pieces:
        found.append(_env_runner_setting(arg, "frame_stack", "4"))
        program.notes.add(line, "frame_stack=4: is that the number of frames?", "docs/environments.md")
    if not found and "FlattenObservations" not in pieces:
        program.notes.add(
            line,
            "env_to_module_connector=... was deleted: use env_wrappers=[...]",
            "docs/environments.md",
        )
    return found


def _env_runner_setting(arg: cst.Arg, name: str, value: str) -> tuple[str, cst.Arg]:
    return "env_runners", arg.with_changes(keyword=cst.Name(name), value=cst.parse_expression(value))


def kept_result(program: Program, node: cst.SimpleStatementLine, line: int) -> cst.BaseStatement | None:
    """`config.training(...)` on a line of its own as an assignment: a config of plugrad is never changed in place.

    Args:
        program: what is known of the file.
        node: a part of its tree.
        line: where it stood, from 1.

    Returns:
        What takes its place; None: it stays.
    """
    call = expression_statement(node)
    root: cst.BaseExpression | None = call
    while isinstance(root, cst.Call) and isinstance(root.func, cst.Attribute):
        if root.func.attr.value not in SECTIONS:
            return None
        root = root.func.value
    if call is None or not isinstance(root, cst.Name) or root.value not in program.configs:
        return None
    target = cst.AssignTarget(cst.Name(root.value))
    return node.with_changes(body=[cst.Assign([target], call)])


def own_setting(node: cst.Subscript) -> cst.BaseExpression:
    """`config.learner_config_dict["a"]` as `config.a`."""
    if not (isinstance(node.value, cst.Attribute) and node.value.attr.value == "learner_config_dict"):
        return node
    key = re.fullmatch(r"""\[?["'](\w+)["']\]?""", code(node.slice[0]).rstrip(","))
    return node if key is None else cst.Attribute(node.value.value, cst.Name(key[1]))
