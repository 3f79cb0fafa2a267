"""`RLModuleSpec`: RLlib's default modules are built without a class here, and weights are loaded into an algorithm."""

import libcst as cst

from plugrad_rllib.migrate.code import code, name_of
from plugrad_rllib.migrate.names import CATALOGS, DEFAULT_MODULES
from plugrad_rllib.migrate.program import Program

_LOADED = (
    "load_state_path=... was deleted: a spec is part of checkpoints, which read no other file: after "
    'algorithm = config.build_algo(): algorithm.restore_from_path(path, component="rl_module/<module id>")'
)


def without_class(program: Program, node: cst.Name) -> cst.BaseExpression:
    """RLlib's class of a default module as None, where the program derives no class from it.

    Args:
        program: what is known of the file.
        node: a part of its tree.

    Returns:
        What takes its place.
    """
    is_default = program.imported.get(node.value) in DEFAULT_MODULES and node.value not in program.bases
    return cst.Name("None") if is_default else node


def rewrite(program: Program, call: cst.Call, line: int) -> cst.Call:
    """`RLModuleSpec(catalog_class=PPOCatalog, load_state_path=path, ...)` without what it has not here.

    Args:
        program: what is known of the file.
        call: a call.
        line: where it stood, from 1.

    Returns:
        What takes its place.
    """
    if program.imported.get(name_of(call.func) or "") != "RLModuleSpec":
        return call
    kept = []
    for each in call.args:
        name = None if each.keyword is None else each.keyword.value
        value = code(each.value)
        if name == "load_state_path":
            program.notes.add(line, _LOADED, "docs/checkpoints.md")
        elif name == "catalog_class":
            if program.imported.get(value) not in CATALOGS and value != "None":
                text = f"catalog_class={value} was deleted: write the network in setup() of an RLModule"
                program.notes.add(line, text, "docs/your-model.md")
        elif name != "module_class" or value != "None":
            kept.append(each)
    if kept and len(kept) < len(call.args):
        kept[-1] = kept[-1].with_changes(comma=call.args[-1].comma)
    return call.with_changes(args=kept)
