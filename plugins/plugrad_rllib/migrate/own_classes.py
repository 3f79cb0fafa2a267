"""Classes of a program that derive from RLlib's own: what each is here is another thing, and is named at its line."""

import libcst as cst

from plugrad_rllib.migrate.code import code, name_of
from plugrad_rllib.migrate.names import ALGORITHMS
from plugrad_rllib.migrate.program import Program

_PAGE = "docs/write-an-algorithm.md"
_STEP = "training_step"


def note(program: Program, node: cst.ClassDef, line_of: dict[str, int], line: int) -> None:
    """Note a class of an algorithm, and a config class that RLlib changes in place.

    Args:
        program: what is known of the file.
        node: the class.
        line_of: the lines of its methods.
        line: its own.
    """
    bases = {program.imported.get(name_of(each.value) or "", "") for each in node.bases}
    name = node.name.value
    if bases & {"Algorithm", *ALGORITHMS}:
        text = (
            f"class {name}: config.build_algo() makes the Algorithm itself; what an iteration does is the method "
            f"{_STEP} of a Training, which a plugin gives by the hook get_training_class"
        )
        program.notes.add(line, text, _PAGE)
    made = [each for each in ("__init__", "training") if each in line_of]
    if made and any(each.endswith("Config") for each in bases):
        text = (
            f"class {name}: a config is a frozen dataclass: write @dataclass(frozen=True, kw_only=True) and a field "
            f"for each setting in place of {' and '.join(made)}"
        )
        program.notes.add(line, text, _PAGE)


def note_member(program: Program, node: cst.Attribute, line: int) -> None:
    """Note what modules, policies and Ray's data have in RLlib and not here.

    Args:
        program: what is known of the file.
        node: a part of its tree.
        line: where it stands, from 1.
    """
    name, owner = node.attr.value, code(node.value)
    if name == "half" and program.imported:
        text = '.half(): config.framework(precision="bf16") computes in lower precision; weights stay float32'
        program.notes.add(line, text, "docs/performance.md")
    elif name == "foreach_module":
        text = ".foreach_module(f): a MultiRLModule is a mapping: for module_id, module in modules.items()"
        program.notes.add(line, text, "docs/multi-agent.md")
    elif name == "model" and (owner.endswith(".get_policy()") or owner in program.policies):
        text = ".model: a policy acts, policy.predict(...); it is saved by policy.export_onnx(path)"
        program.notes.add(line, text, "docs/use-a-policy.md")
    elif owner.endswith(".algo_class"):
        text = (
            f".algo_class.{name}: config.build_algo() makes the Algorithm, trainable(config) Ray Tune's class"
        )
        program.notes.add(line, text, "docs/ray-tune.md")
    elif owner == "ray.data" and name.startswith("read_"):
        text = f"ray.data.{name}: recorded episodes are plugrad's own files, which offline_data(input_=path) reads"
        program.notes.add(line, text, "docs/offline.md")
