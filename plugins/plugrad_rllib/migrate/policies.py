"""Policies of several agents, by `PolicySpec` or by the older tuple of four, as specs of modules."""

import libcst as cst

from plugrad_rllib.migrate.code import code, name_of
from plugrad_rllib.migrate.names import HERE
from plugrad_rllib.migrate.program import Program

_PARTS = ("policy_class", "observation_space", "action_space", "config")
"""What a policy is given by, in RLlib's order."""
_PAGE = "docs/multi-agent.md"


def by_name(program: Program, call: cst.Call, line: int) -> cst.BaseExpression:
    """`PolicySpec(...)` as `RLModuleSpec(...)`; any other call stays.

    Args:
        program: what is known of the file.
        call: the call.
        line: where it stood, from 1.

    Returns:
        What takes its place.
    """
    if program.imported.get(name_of(call.func) or "") != "PolicySpec" or any(each.star for each in call.args):
        return call
    names = [
        _PARTS[n] if each.keyword is None else each.keyword.value
        for n, each in enumerate(call.args[: len(_PARTS)])
    ]
    return _spec(program, dict(zip(names, (each.value for each in call.args), strict=False)), line)


def by_tuples(program: Program, arg: cst.Arg, line: int) -> cst.Arg:
    """`policies={"a": (None, observation_space, action_space, {})}` with specs in place of the tuples.

    Args:
        program: what is known of the file.
        arg: the argument.
        line: where it stood, from 1.

    Returns:
        What takes its place.
    """
    if not isinstance(arg.value, cst.Dict):
        return arg
    elements = [
        each.with_changes(
            value=_spec(
                program, dict(zip(_PARTS, (part.value for part in each.value.elements), strict=True)), line
            )
        )
        if isinstance(each, cst.DictElement)
        and isinstance(each.value, cst.Tuple)
        and len(each.value.elements) == len(_PARTS)
        else each
        for each in arg.value.elements
    ]
    return arg.with_changes(value=arg.value.with_changes(elements=elements))


def _spec(program: Program, parts: dict[str, cst.BaseExpression], line: int) -> cst.BaseExpression:
    given = {name: code(value) for name, value in parts.items() if code(value) not in ("None", "{}")}
    if "policy_class" in given:
        text = (
            f"policy_class={given.pop('policy_class')} was deleted: a policy is an RLModule: "
            "RLModuleSpec(module_class=...)"
        )
        program.notes.add(line, text, _PAGE)
    if "config" in given:
        text = (
            f"a policy's config {given.pop('config')} was deleted: "
            "rl_module(algorithm_config_overrides_per_module={module id: {setting: value}})"
        )
        program.notes.add(line, text, _PAGE)
    program.needed.add((*HERE["RLModuleSpec"], "RLModuleSpec"))
    return cst.parse_expression(
        f"RLModuleSpec({', '.join(f'{name}={value}' for name, value in given.items())})"
    )
