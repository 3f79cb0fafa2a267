"""`RLModule.from_checkpoint(path)`: here a learner makes the module, since a checkpoint holds no code."""

from collections.abc import Sequence

import libcst as cst

from plugrad_rllib.migrate.algorithms import PARTS_OF_CHECKPOINTS
from plugrad_rllib.migrate.code import as_one, code, name_of, string
from plugrad_rllib.migrate.program import Program

_IDS = ("DEFAULT_MODULE_ID", "DEFAULT_POLICY_ID")
_INSTEAD = (
    "RLModule.from_checkpoint: a checkpoint holds no code: Learner.from_checkpoint(path).module[module_id], with the "
    "path of the whole checkpoint"
)


def rewrite(program: Program, before: cst.Call, call: cst.BaseExpression, line: int) -> cst.BaseExpression:
    """`RLModule.from_checkpoint(os.path.join(path, COMPONENT_..., DEFAULT_MODULE_ID))` by the learner that saved it.

    Args:
        program: what is known of the file.
        before: a call of the program.
        call: the same with rewritten arguments.
        line: where it stood, from 1.

    Returns:
        What takes its place.
    """
    func = before.func
    is_loading = isinstance(func, cst.Attribute) and func.attr.value == "from_checkpoint"
    owner = name_of(func.value) if isinstance(func, cst.Attribute) else None
    if not is_loading or program.imported.get(owner or "") != "RLModule" or not isinstance(call, cst.Call):
        return call
    parts, given = _parts(before.args), _parts(call.args)
    named = [string(each) or program.imported.get(name_of(each) or "", "") for each in parts[1:]]
    known = {*PARTS_OF_CHECKPOINTS, *PARTS_OF_CHECKPOINTS.values()}
    if not named or named[-1] not in _IDS or not known >= set(named[:-1]):
        program.notes.add(line, _INSTEAD, "docs/checkpoints.md")
        return call
    program.needed.add(("plugrad", "Learner", "Learner"))
    return cst.parse_expression(f"Learner.from_checkpoint({code(given[0])}).module[{as_one(given[-1])}]")


def _parts(args: Sequence[cst.Arg]) -> list[cst.BaseExpression]:
    """The parts of a path: the arguments of `os.path.join(...)`."""
    value = args[0].value if args else cst.Name("None")
    if isinstance(value, cst.Call) and name_of(value.func) == "join":
        return [each.value for each in value.args]
    return [value]
