"""What a program does with the algorithm that its config built."""

from collections.abc import Mapping
from types import MappingProxyType

import libcst as cst

from plugrad_rllib.migrate.code import code, name_of, string
from plugrad_rllib.migrate.program import Program

RENAMED: Mapping[str, str] = MappingProxyType(
    {
        "load_checkpoint": "restore_from_path",
        "restore": "restore_from_path",
        "save": "save_to_path",
        "save_checkpoint": "save_to_path",
        "save_to_path": "save_to_path",
    }
)
"""`{method of RLlib's Algorithm: the same here}`. There `save_to_path` has a path of its own choice."""

INSTEAD: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "add_module": (
            "algorithm.add_module(...) takes agent_to_module= and policies_to_train= for RLlib's new_...= arguments",
            "docs/multi-agent.md",
        ),
        "compute_actions": (
            "algorithm.get_policy().predict(observations, deterministic=False)[0]",
            "docs/use-a-policy.md",
        ),
        "compute_single_action": (
            "algorithm.get_policy().predict(observation, deterministic=False)[0]",
            "docs/use-a-policy.md",
        ),
        "env_runner": ("algorithm.sample() gives episodes", "docs/sampling.md"),
        **dict.fromkeys(
            ("env_runner_group", "eval_env_runner_group"),
            (
                "algorithm.env_runners.call(name, ...) calls a method of every environment; algorithm.sample() gives "
                "episodes",
                "docs/environments.md",
            ),
        ),
        "export_policy_model": ("plugrad export RUN -o policy.safetensors", "docs/use-a-policy.md"),
        "get_module": (
            "algorithm.get_policy() acts; the module is "
            "algorithm.learner_group.foreach_learner(lambda learner: learner.module[module_id])[0]",
            "docs/use-a-policy.md",
        ),
        "metrics": (
            "train() returns the metrics; metrics_logger of a callback logs others",
            "docs/listeners.md",
        ),
        "_counters": ("keep numbers of your own in the callback", "docs/listeners.md"),
        "get_weights": ("algorithm.learner_group.get_weights()", "docs/from-rllib.md"),
        "set_weights": ("algorithm.learner_group.set_weights(...)", "docs/from-rllib.md"),
        "workers": ("algorithm.sample() gives episodes", "docs/sampling.md"),
    }
)
"""`{member of RLlib's Algorithm: (what to type, page)}`."""

IN_CALLBACKS = frozenset({"_counters", "env_runner_group", "eval_env_runner_group", "get_module", "metrics"})
"""Of them, what the Algorithm has that a callback gets (`plugrad_rllib.running_algorithm`)."""

PARTS_OF_CHECKPOINTS: Mapping[str, str] = MappingProxyType(
    {
        "COMPONENT_LEARNER": "learner",
        "COMPONENT_LEARNER_GROUP": "learner_group",
        "COMPONENT_OPTIMIZER": "optimizer",
        "COMPONENT_RL_MODULE": "rl_module",
    }
)
"""`{name of RLlib: the folder in a checkpoint}`."""

_OF_SAVED = ["path", "checkpoint"]
_FOLDER = '"checkpoint"'


def rewrite(program: Program, node: cst.BaseExpression, line: int) -> cst.BaseExpression:
    """Give a method of an algorithm its name here.

    Args:
        program: what is known of the file.
        node: a part of its tree.
        line: where it stood, from 1.

    Returns:
        What takes its place.
    """
    if not (isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)):
        return node
    if node.func.attr.value == "restore_from_path":
        return node.with_changes(args=[_with_component(program, each) for each in node.args])
    if not _is_algorithm(program, node.func) or node.func.attr.value not in RENAMED:
        return node
    name = RENAMED[node.func.attr.value]
    args = [
        each.with_changes(value=_path(each.value), keyword=None, equal=cst.MaybeSentinel.DEFAULT)
        for each in node.args[:1]
    ]
    if len(node.args) > 1:
        dropped = ", ".join(code(each).rstrip(",") for each in node.args[1:])
        text = f".{name}: {dropped} was deleted: it takes the path alone"
        program.notes.add(line, text, "docs/checkpoints.md")
    if not args and name == "save_to_path":
        args = [cst.Arg(cst.SimpleString(_FOLDER))]  # RLlib's own choice is a folder of Ray's
    return node.with_changes(func=node.func.with_changes(attr=cst.Name(name)), args=args)


def _path(node: cst.BaseExpression) -> cst.BaseExpression:
    """`result.checkpoint`, which is an object of Ray Tune's, as its path."""
    is_object = isinstance(node, cst.Attribute) and node.attr.value == "checkpoint"
    return cst.Attribute(node, cst.Name("path")) if is_object else node


def _with_component(program: Program, arg: cst.Arg) -> cst.Arg:
    """`component=f"{COMPONENT_LEARNER_GROUP}/{COMPONENT_LEARNER}/{COMPONENT_RL_MODULE}"` as `component="rl_module"`."""
    if arg.keyword is None or arg.keyword.value != "component":
        return arg
    text = string(arg.value)
    if isinstance(arg.value, cst.FormattedString):
        parts = [
            each.value
            if isinstance(each, cst.FormattedStringText)
            else PARTS_OF_CHECKPOINTS.get(program.imported.get(_expression(each), ""))
            for each in arg.value.parts
        ]
        text = None if None in parts else "".join(map(str, parts))
    if text is None:
        return arg
    path = text.removeprefix("learner_group/").removeprefix("learner/")
    return arg.with_changes(value=cst.SimpleString(f'"{path}"'))


def _expression(part: cst.BaseFormattedStringContent) -> str:
    return code(part.expression) if isinstance(part, cst.FormattedStringExpression) else ""


def whole_checkpoint(
    program: Program, before: cst.BinaryOperation, node: cst.BinaryOperation, line: int
) -> cst.BaseExpression:
    """`path / COMPONENT_LEARNER_GROUP / COMPONENT_RL_MODULE / DEFAULT_MODULE_ID` as `path`: a checkpoint is one folder.

    Args:
        program: what is known of the file.
        before: a part of its tree.
        node: the same after its names were replaced.
        line: where it stood, from 1.

    Returns:
        What takes its place.
    """
    if not _names_part(program, before):
        return node
    text = (
        "a checkpoint is one folder, whose parts are named by component=: "
        'restore_from_path(path, component="rl_module/<module id>")'
    )
    program.notes.add(line, text, "docs/checkpoints.md")
    return node.left


def _names_part(program: Program, node: cst.BaseExpression) -> bool:
    """Whether an expression is a path whose last part names a part of a checkpoint, or a module in it."""
    if not (isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide)):
        return False
    name = program.imported.get(name_of(node.right) or "", "")
    is_id = name in ("DEFAULT_MODULE_ID", "DEFAULT_POLICY_ID") or string(node.right) is not None
    is_module = is_id and _names_part(program, node.left)
    return is_module or name in PARTS_OF_CHECKPOINTS


def saved_path(node: cst.Attribute) -> cst.BaseExpression:
    """`algorithm.save_to_path(...).checkpoint.path` without what follows the call, which returns the path itself."""
    parts: list[str] = []
    inner: cst.BaseExpression = node
    while isinstance(inner, cst.Attribute) and len(parts) < len(_OF_SAVED):
        parts.append(inner.attr.value)
        inner = inner.value
    is_saving = (
        isinstance(inner, cst.Call)
        and isinstance(inner.func, cst.Attribute)
        and inner.func.attr.value == "save_to_path"
    )
    return inner if is_saving and parts == _OF_SAVED else node


def note(program: Program, node: cst.Attribute, line: int) -> None:
    """Note a member of an algorithm that has another form here.

    Args:
        program: what is known of the file.
        node: a part of its tree.
        line: where it stands, from 1.
    """
    name = node.attr.value
    if name == "from_checkpoint" and program.own_code and _is_algorithm_class(program, node):
        text = (
            f".from_checkpoint: this checkpoint has {', '.join(sorted(program.own_code))}, and no checkpoint imports "
            "code: algorithm = config.build_algo(), then algorithm.restore_from_path(path)"
        )
        program.notes.add(line, text, "docs/checkpoints.md")
    if line in program.callbacks and code(node.value) == "algorithm" and name in IN_CALLBACKS:
        return
    if _is_algorithm(program, node) and name in INSTEAD:
        text, page = INSTEAD[name]
        program.notes.add(line, f".{name}: {text}", page)


def _is_algorithm_class(program: Program, node: cst.Attribute) -> bool:
    return isinstance(node.value, cst.Name) and program.imported.get(node.value.value) == "Algorithm"


def _is_algorithm(program: Program, node: cst.Attribute) -> bool:
    return isinstance(node.value, cst.Name) and node.value.value in program.algorithms
