"""Configs: where a setting is set here, own settings of a learner, and calls whose result was dropped."""

import re

import libcst as cst

from plugrad.config import SECTIONS as OURS
from plugrad.deprecation import hint_for
from plugrad.model_config import MODEL_SETTINGS
from plugrad_rllib.migrate import callbacks, config_arguments, environments, tuning
from plugrad_rllib.migrate.code import argument, as_one, code, expression_statement, name_of, string
from plugrad_rllib.migrate.names import ALGORITHMS, HAVE_RLLIB_DEFAULTS, HERE
from plugrad_rllib.migrate.program import Program
from plugrad_rllib.migrate.settings import MOVED, NO_SECTIONS, READ, SECTIONS


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
    name = _name_of_rllib(program, node.func)
    if name == "get_trainable_cls":
        program.needed.add(("plugrad", "get_algorithm", "get_algorithm"))
        which = node.args[0].value
        plain = string(which)
        short = f'"{plain.lower()}"' if plain is not None else f"{as_one(which)}.lower()"
        return cst.parse_expression(f"get_algorithm({short})")
    if name in ALGORITHMS and len(node.args) == 1 and not node.args[0].star:
        return cst.parse_expression(f"{as_one(node.args[0].value)}.build_algo()")
    if name is not None and name.endswith("Config"):
        node = _without_algo_class(program, node, line)
    if name in HAVE_RLLIB_DEFAULTS and not node.args and isinstance(node.func, cst.Name):
        return cst.parse_expression(f"{program.own_config(node.func.value)}.rllib_defaults()")
    if not isinstance(node.func, cst.Attribute):
        return node
    method = node.func.attr.value
    if method == "get_default_config" and not node.args:
        return _default_config(program, node, node.func, line)
    if method == "overrides" and _is_config(program, node.func.value):
        return node.with_changes(func=cst.Name("dict"))
    if method in ("build", "build_algo") and not node.args and _is_config(program, node.func.value):
        return node.with_changes(func=node.func.with_changes(attr=cst.Name("build_algo")))
    if method in SECTIONS and _is_config(program, node.func.value):
        return _section(program, node, node.func, line)
    if (
        _is_config(program, node.func.value)
        and not (hasattr(dict, method) and name_of(node.func.value) in program.plain_dicts)
        and not any(hasattr(each, method) for each in config_arguments.classes_of(program))
    ):
        program.notes.add(line, f"a config has no .{method}(...).{hint_for(method)}".removesuffix("."))
    return node


def _name_of_rllib(program: Program, node: cst.BaseExpression) -> str | None:
    """RLlib's name of what is called: imported, or `get_trainable_cls` of a module."""
    name = name_of(node) or ""
    if isinstance(node, cst.Attribute) and name == "get_trainable_cls":
        return name
    return program.imported.get(name)


def _without_algo_class(program: Program, call: cst.Call, line: int) -> cst.Call:
    """`PPOConfig(algo_class=PPO)` without its argument."""
    given = argument(call, "algo_class", 0)
    if given is None:
        return call
    if program.imported.get(name_of(given.value) or "") not in ALGORITHMS and code(given.value) != "None":
        text = f"algo_class={code(given.value)} was deleted: what an iteration does is a Training of a plugin"
        program.notes.add(line, text, "docs/write-an-algorithm.md")
    return call.with_changes(args=[each for each in call.args if each is not given])


def _default_config(program: Program, call: cst.Call, func: cst.Attribute, line: int) -> cst.BaseExpression:
    """`PPO.get_default_config()` as the config of RLlib's defaults."""
    name = name_of(func.value) or ""
    config = ALGORITHMS.get(program.imported.get(name, ""))
    if config is not None:
        program.needed.add((*HERE[config], config))
        defaults = ".rllib_defaults" if config in HAVE_RLLIB_DEFAULTS else ""
        return cst.parse_expression(f"{program.own_config(config)}{defaults}()")
    if name in program.config_parameters:  # a class of the file
        text = (
            f"{name}.get_default_config(): take the config's class itself, such as PPOConfig.rllib_defaults()"
        )
        program.notes.add(line, text)
        return call
    return call.with_changes(func=func.with_changes(attr=cst.Name("rllib_defaults")))


def model_config(program: Program, call: cst.Call, line: int) -> cst.Call:
    """`DefaultModelConfig(...)` as a dict of what built-in networks have.

    Args:
        program: what is known of the file.
        call: the call.
        line: where it stood, from 1.

    Returns:
        What takes its place.
    """
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
        return _without_section(program, call, func, line)
    if section == "callbacks":
        return callbacks.of_config(program, call, func, line)
    if section not in OURS and section != "resources":
        program.notes.add(line, f"there is no .{section}(...)")
    if section == "environment":
        call = environments.of_config(program, call)
    end = call.args[-1] if call.args else None
    if section == "evaluation":
        call = _in_episodes(program, call, line)
    here: list[cst.Arg] = []
    elsewhere: dict[str, list[cst.Arg]] = {}
    for each in call.args:
        for target, setting in config_arguments.rewritten(program, section, each, line):
            if tuning.searched(program, setting):
                continue
            setting = tuning.first_of_grid(program, setting, line)
            (here if target == section else elsewhere.setdefault(target, [])).append(setting)
    node: cst.BaseExpression = func.value
    if here and end is not None:  # the last one ends as the last one did, so that the layout stays
        last = here[-1].with_changes(comma=end.comma, whitespace_after_arg=end.whitespace_after_arg)
        node = call.with_changes(args=[*here[:-1], last])
    elif end is None:
        node = call
    for target, settings in elsewhere.items():
        method = cst.Attribute(node, cst.Name(target), dot=func.dot)
        node = cst.Call(method, [_plain(each) for each in settings])
    return node


def _without_section(program: Program, call: cst.Call, func: cst.Attribute, line: int) -> cst.BaseExpression:
    """The config without a call of a method that plugrad has not, with a note."""
    section = func.attr.value
    if section != "api_stack" or any(code(each.value) != "True" for each in call.args):
        program.notes.add(line, f".{section}(...) was deleted: {NO_SECTIONS[section]}")
    for each in call.args if section == "experimental" else ():
        hint = config_arguments.hint_of(each.keyword.value if each.keyword is not None else "")
        if hint:
            program.notes.add(line, f"experimental({code(each.keyword or each)}=...): {hint}")
    return func.value


def _plain(setting: cst.Arg) -> cst.Arg:
    return setting.with_changes(
        comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=cst.SimpleWhitespace("")
    )


def _in_episodes(program: Program, call: cst.Call, line: int) -> cst.Call:
    """`.evaluation(...)` without a duration in time steps, or in what fits: plugrad counts episodes."""
    duration, unit = (argument(call, f"evaluation_duration{each}") for each in ("", "_unit"))
    is_counted = duration is None or string(duration.value) is None
    gone = [] if unit is None else [unit]
    if not is_counted or (unit is not None and string(unit.value) != "episodes"):
        gone += [] if duration is None else [duration]
        named = ", ".join(code(each).rstrip(",") for each in (duration, unit) if each is not None)
        text = f"evaluation({named}) was deleted: evaluation_num_episodes counts episodes"
        program.notes.add(line, text)
    return call.with_changes(args=[each for each in call.args if each not in gone])


def read_setting(node: cst.Attribute) -> cst.BaseExpression:
    """`algorithm.config.evaluation_duration_unit` as "episodes": what a setting that went is here.

    Args:
        node: a part of its tree.

    Returns:
        What takes its place.
    """
    is_of_config = isinstance(node.value, cst.Attribute) and node.value.attr.value == "config"
    here = READ.get(node.attr.value, "") if is_of_config else ""
    if here.startswith("."):
        return node.with_changes(attr=cst.Name(here[1:]))
    return cst.parse_expression(here) if here else node


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
        if root.func.attr.value not in {
            *SECTIONS,
            "plugins",
        }:  # what was .callbacks(...) is .plugins(...) by now
            return None
        root = root.func.value
    if call is None or not isinstance(root, cst.Name) or root.value not in program.configs:
        return None
    target = cst.AssignTarget(cst.Name(root.value))
    return node.with_changes(body=[cst.Assign([target], call)])


def assigned_setting(program: Program, node: cst.SimpleStatementLine, line: int) -> cst.BaseStatement | None:
    """`config.lr = 0.1` as `config = config.training(lr=0.1)`: a config of plugrad is frozen.

    Args:
        program: what is known of the file.
        node: a part of its tree.
        line: where it stood, from 1.

    Returns:
        What takes its place; None: it stays.
    """
    (statement,) = node.body
    if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0].target
    if not (isinstance(target, cst.Attribute) and isinstance(target.value, cst.Name)):
        return None
    if target.value.value not in program.configs:
        return None
    name, ours = target.attr.value, config_arguments.fields_of(program)
    moved = [theirs for theirs, setting in MOVED if setting == name]
    sections = [ours[name].section] if name in ours else moved
    if not sections:
        program.notes.add(
            line, f"{code(target)} = ...: a config is frozen: config = config.training({name}=...)"
        )
        return None
    func = cst.Attribute(target.value, cst.Name(sections[0]))
    setting = cst.Arg(statement.value, keyword=cst.Name(name), equal=_EQUAL)
    changed = _section(program, cst.Call(func, [setting]), func, line)
    return node.with_changes(body=[cst.Assign([cst.AssignTarget(target.value)], changed)])


_EQUAL = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))


def own_setting_or(program: Program, call: cst.Call) -> cst.BaseExpression:
    """`config.learner_config_dict.get("a", 0.5)` as `config.a`, or with a default where the program sets none."""
    func = call.func
    if not (isinstance(func, cst.Attribute) and func.attr.value == "get" and len(call.args) in (1, 2)):
        return call
    inner, key = func.value, string(call.args[0].value)
    if not (isinstance(inner, cst.Attribute) and inner.attr.value == "learner_config_dict") or key is None:
        return call
    if key in program.own_settings:
        return cst.Attribute(inner.value, cst.Name(key))
    default = code(call.args[1].value) if len(call.args) == 2 else "None"
    return cst.parse_expression(f'getattr({code(inner.value)}, "{key}", {default})')


def own_setting(node: cst.Subscript) -> cst.BaseExpression:
    """`config.learner_config_dict["a"]` as `config.a`."""
    if not (isinstance(node.value, cst.Attribute) and node.value.attr.value == "learner_config_dict"):
        return node
    key = re.fullmatch(r"""\[?["'](\w+)["']\]?""", code(node.slice[0]).rstrip(","))
    return node if key is None else cst.Attribute(node.value.value, cst.Name(key[1]))
