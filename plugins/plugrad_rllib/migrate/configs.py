"""Configs: where a setting is set here, own settings of a learner, and calls whose result was dropped."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import libcst as cst

from plugrad.config import SECTIONS as OURS
from plugrad.config.fields import FieldInfo
from plugrad.deprecation import hint_for
from plugrad.importing.names import resolve_name
from plugrad.model_config import MODEL_SETTINGS
from plugrad.replay.settings import DEFAULTS as REPLAY_SETTINGS
from plugrad_rllib.migrate import callbacks, connectors, environments, policies
from plugrad_rllib.migrate.code import argument, as_one, code, expression_statement, name_of, string
from plugrad_rllib.migrate.names import ALGORITHMS, HAVE_RLLIB_DEFAULTS, HERE
from plugrad_rllib.migrate.program import Program
from plugrad_rllib.migrate.settings import (
    GONE,
    HALVED,
    MOVED,
    NO_SECTIONS,
    PER_LEARNER,
    REPLAY_BUFFERS,
    SECTIONS,
)

_DELETE = "delete it: "
_CONFIGS = frozenset(name for name in HERE if name.endswith("Config") and name != "AlgorithmConfig")


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
    if _is_config(program, node.func.value) and not any(hasattr(each, method) for each in _classes(program)):
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
        if section != "api_stack" or any(code(each.value) != "True" for each in call.args):
            program.notes.add(line, f".{section}(...) was deleted: {NO_SECTIONS[section]}")
        for each in call.args if section == "experimental" else ():
            hint = hint_for(each.keyword.value if each.keyword is not None else "")
            if hint:
                program.notes.add(
                    line, f"experimental({code(each.keyword or each)}=...): {_plain_hint(hint)}"
                )
        return func.value
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
        for target, setting in _setting(program, section, each, line):
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


def _plain(setting: cst.Arg) -> cst.Arg:
    return setting.with_changes(
        comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=cst.SimpleWhitespace("")
    )


def _setting(program: Program, section: str, arg: cst.Arg, line: int) -> list[tuple[str, cst.Arg]]:
    """What one argument of a fluent call becomes: `[(method, argument)]`."""
    if arg.keyword is None:
        if arg.star:
            program.notes.add(line, f"{section}({code(arg).rstrip(',')}): rename the settings in it yourself")
        return [(section, arg)]
    name = arg.keyword.value
    if name == "learner_config_dict":
        return _own_settings(program, arg, line)
    if name == connectors.OF_ENVIRONMENTS:
        return [("env_runners", each) for each in connectors.env_runner_settings(program, arg, line)]
    if name == "evaluation_config":
        return [("evaluation", each) for each in connectors.of_evaluation(program, arg, line)]
    if name == "rollout_fragment_length" and string(arg.value) == "auto":
        return []  # it is the default
    if name == connectors.OF_LEARNERS:
        kept = connectors.without_frame_stacking(program, arg, line)
        return [] if kept is None else _place(program, section, name, kept, line)
    if name in PER_LEARNER:
        arg = _of_all_learners(program, section, arg, line)
    elif name in HALVED:
        arg = _half(program, section, arg, line)
    elif name == "num_learners":
        _note_default_minibatch(program, arg, line)
    elif name in ("model", "model_config", "model_config_dict"):
        _note_own_model_settings(program, section, arg, line)
    elif name == "replay_buffer_config":
        arg = _replay_buffer(program, arg, line)
    elif name == "policies":
        arg = policies.by_tuples(program, arg, line)
    elif name == "gym_env_vectorize_mode":
        arg = _in_lower_case(program, section, arg, line)
    elif name == "vf_clip_param" and code(arg.value) == "None":
        arg = arg.with_changes(value=cst.parse_expression('float("inf")'))
    return _place(program, section, name, arg, line)


def _place(program: Program, section: str, name: str, arg: cst.Arg, line: int) -> list[tuple[str, cst.Arg]]:
    """The method and the name that a setting has here; nothing, with a note, if it goes."""
    if (section, name) in MOVED:
        target, here = MOVED[section, name]
        return [(target, arg.with_changes(keyword=cst.Name(here)))]
    hint = _plain_hint(hint_for(name))
    gone = GONE.get(name) or (hint.removeprefix(_DELETE) if hint.startswith(_DELETE) else None)
    if gone:
        program.notes.add(line, f"{section}({name}=...) was deleted: {gone}")
        return []
    ours = _fields(program)
    if name in ours and section in OURS:
        return [(section if ours[name].is_in(section) else ours[name].section, arg)]
    if hint:
        program.notes.add(line, f"{section}({name}=...): {hint}")
    elif section in OURS and (section, name) not in _OLDER:
        program.notes.add(line, f"{section}({name}=...): plugrad has no such setting")
    return [(section, arg)]


def _plain_hint(hint: str) -> str:
    return hint.removeprefix(" Here: ").removesuffix(".")


_OLDER = {("framework", "framework"), ("rl_module", "model_config_dict")}
"""Settings whose older names work."""


def _fields(program: Program) -> Mapping[str, FieldInfo]:
    """The settings of the config classes that a program may use."""
    return _fields_of(_classes(program))


@cache
def _fields_of(classes: tuple[Any, ...]) -> Mapping[str, FieldInfo]:
    found: dict[str, FieldInfo] = {}
    for each in classes:
        found |= each.fields()
    return found


def _classes(program: Program) -> tuple[Any, ...]:
    """The config classes that a program imports; all where it imports none."""
    return _classes_of(program.of_rllib & _CONFIGS or _CONFIGS)


@cache
def _classes_of(names: frozenset[str]) -> tuple[Any, ...]:
    return tuple(resolve_name(":".join(HERE[name])) for name in sorted(names))


def _of_all_learners(program: Program, section: str, arg: cst.Arg, line: int) -> cst.Arg:
    """A number of rows of one learner as that of all learners, where both numbers stand in the program."""
    number = program.num_learners
    if number == 1 or code(arg.value) == "None":
        return arg
    if number is not None and isinstance(arg.value, cst.Integer):
        return arg.with_changes(value=cst.Integer(str(number * arg.value.evaluated_value)))
    assert arg.keyword is not None
    name = arg.keyword.value
    program.notes.add(
        line, f"{section}({name}=...): plugrad counts the rows of all learners: multiply by num_learners"
    )
    return arg


def _half(program: Program, section: str, arg: cst.Arg, line: int) -> cst.Arg:
    """Half of a number that stands in the program."""
    if isinstance(arg.value, cst.Integer | cst.Float):
        return arg.with_changes(value=cst.Float(str(arg.value.evaluated_value / 2)))
    assert arg.keyword is not None
    text = f"{section}({arg.keyword.value}=...): plugrad halves the squared error beside it: halve this, too"
    program.notes.add(line, text, "docs/from-rllib.md")
    return arg


def _note_default_minibatch(program: Program, arg: cst.Arg, line: int) -> None:
    is_default = "PPOConfig" in program.of_rllib and not program.sets_minibatch_size
    if is_default and program.num_learners != 1:
        text = (
            f"num_learners={code(arg.value)}: RLlib's default minibatch_size=128 is of each learner, plugrad's of all: "
            "set training(minibatch_size=...)"
        )
        program.notes.add(line, text)


def _note_own_model_settings(program: Program, section: str, arg: cst.Arg, line: int) -> None:
    """Note the settings in a dict that no built-in network has; a module class of the program's own may read them."""
    pairs = arg.value.elements if isinstance(arg.value, cst.Dict) else ()
    keys = [string(each.key) for each in pairs if isinstance(each, cst.DictElement)]
    unknown = [key for key in keys if key is not None and key not in MODEL_SETTINGS]
    if unknown:
        assert arg.keyword is not None
        text = (
            f"{section}({arg.keyword.value}=...): built-in networks have no {', '.join(unknown)} and refuse it; a "
            "module_class of your own gets it"
        )
        program.notes.add(line, text, "docs/networks.md")


def _in_lower_case(program: Program, section: str, arg: cst.Arg, line: int) -> cst.Arg:
    """`gym_env_vectorize_mode="SYNC"`, and `=gym.VectorizeMode.SYNC`, by plugrad's name."""
    plain = string(arg.value) or code(arg.value).rpartition("VectorizeMode.")[2]
    if plain.isupper():
        return arg.with_changes(value=cst.SimpleString(f'"{plain.lower()}"'))
    said = (
        f'{section}(vectorization_mode={code(arg.value)}): its names are in lower case here, such as "sync"'
    )
    program.notes.add(line, said, "docs/environments.md")
    return arg


def _replay_buffer(program: Program, arg: cst.Arg, line: int) -> cst.Arg:
    """`replay_buffer_config={"type": "PrioritizedEpisodeReplayBuffer", ...}` with what plugrad's buffers have."""
    pairs = arg.value.elements if isinstance(arg.value, cst.Dict) else ()
    kept: list[cst.BaseDictElement] = []
    for pair in pairs:
        key = string(pair.key) if isinstance(pair, cst.DictElement) else None
        if isinstance(pair, cst.DictElement) and key == "type":
            theirs = string(pair.value) or program.imported.get(name_of(pair.value) or "", code(pair.value))
            if theirs in REPLAY_BUFFERS:
                pair = pair.with_changes(value=cst.SimpleString(f'"{REPLAY_BUFFERS[theirs]}"'))
            else:
                text = f'replay_buffer_config: type {theirs}: there are "uniform" and "prioritized"'
                program.notes.add(line, text, "docs/replay.md")
        elif key is not None and key not in REPLAY_SETTINGS:
            program.notes.add(line, f"replay_buffer_config has no {key}: it was deleted", "docs/replay.md")
            continue
        kept.append(pair)
    if not isinstance(arg.value, cst.Dict):
        text = f"replay_buffer_config: give a dict of {', '.join(REPLAY_SETTINGS)}"
        program.notes.add(line, text, "docs/replay.md")
        return arg
    if kept and len(kept) < len(pairs):
        kept[-1] = kept[-1].with_changes(comma=pairs[-1].comma)
    return arg.with_changes(value=arg.value.with_changes(elements=kept))


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


def _own_settings(program: Program, arg: cst.Arg, line: int) -> list[tuple[str, cst.Arg]]:
    """`learner_config_dict={"a": 1}` as settings of a config class of the program's own."""
    if not isinstance(arg.value, cst.Dict):
        program.notes.add(line, "learner_config_dict: derive a config class with these fields")
        return []
    program.needed.add(("dataclasses", "dataclass", "dataclass"))
    pairs = [each for each in arg.value.elements if isinstance(each, cst.DictElement)]
    for each in arg.value.elements:
        if not isinstance(each, cst.DictElement):
            text = f"learner_config_dict: {code(each).rstrip(',')} was deleted: its keys are fields of the config class"
            program.notes.add(line, text)
    return [
        ("training", arg.with_changes(keyword=cst.Name(string(each.key) or code(each.key)), value=each.value))
        for each in pairs
    ]


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
    name, ours = target.attr.value, _fields(program)
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
