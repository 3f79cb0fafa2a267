"""Ray Tune: `tune.Tuner` of an RLlib config as one of `plugrad_rllib.tune.trainable`, with what it searches."""

import ast

import libcst as cst

from plugrad_rllib.migrate.code import argument, code, name_of, string
from plugrad_rllib.migrate.names import ALGORITHMS
from plugrad_rllib.migrate.program import SAMPLERS, Program

HELPER = "run_rllib_example_script_experiment"
"""RLlib's function that runs an example."""


def searched(program: Program, setting: cst.Arg) -> bool:
    """Keep `lr=tune.loguniform(1e-5, 1e-2)` for the Tuner: a config of plugrad has values alone.

    Args:
        program: what is known of the file; what is searched is added to it.
        setting: of a config, by its name here.

    Returns:
        Whether the setting is searched, and so leaves the config.
    """
    called = code(setting.value.func) if isinstance(setting.value, cst.Call) else ""
    if not program.is_tuned or setting.keyword is None or called.rpartition(".")[2] not in SAMPLERS:
        return False
    program.searched[setting.keyword.value] = code(setting.value)
    return True


def first_of_grid(program: Program, setting: cst.Arg, line: int) -> cst.Arg:
    """`lr=tune.grid_search([0.1, 0.01])` as `lr=0.1`, where a loop takes the place of RLlib's helper, which runs Tune.

    Args:
        program: what is known of the file.
        setting: of a config, by its name here.
        line: where it stood, from 1.

    Returns:
        What takes its place.
    """
    grid = setting.value
    if not (isinstance(grid, cst.Call) and code(grid.func).rpartition(".")[2] == "grid_search" and grid.args):
        return setting
    values = grid.args[0].value
    if HELPER not in program.of_rllib or not isinstance(values, cst.List) or not values.elements:
        return setting
    first = values.elements[0].value
    text = (
        f"{code(grid)}: the loop below takes the first value; tune.Tuner(trainable(config), "
        f'param_space={{"{code(setting.keyword or setting)}": {code(grid)}}}) of Ray Tune tries all'
    )
    program.notes.add(line, text, "docs/ray-tune.md")
    return setting.with_changes(value=first)


def tuner(program: Program, before: cst.Call, call: cst.Call, line: int) -> cst.Call:
    """`tune.Tuner("PPO", param_space=config)` as `tune.Tuner(trainable(config), param_space={...})`.

    Args:
        program: what is known of the file.
        before: a call of the program.
        call: the same with rewritten arguments.
        line: where it stood, from 1.

    Returns:
        What takes its place.
    """
    if not code(call.func).endswith(("Tuner", "Tuner.restore")):
        return call
    theirs, space = argument(before, "param_space"), argument(call, "param_space")
    given = argument(call, "trainable", 1 if code(call.func).endswith(".restore") else 0)
    if theirs is None or space is None:
        return call
    if not program.is_config(ast.parse(code(theirs.value).strip(), mode="eval").body):
        return call
    program.is_tuned = False  # what is searched from here on is none of this Tuner
    pairs = ", ".join(f'"{name}": {value}' for name, value in program.searched.items())
    if given is None or not _is_algorithm(program, given.value):
        text = (
            f"{code(call.func)}(..., param_space={code(space.value)}): give what your trainable takes, such as "
            f"param_space={{{pairs}}}; trainable(config) of plugrad_rllib.tune runs a config"
        )
        program.notes.add(line, text, "docs/ray-tune.md")
        return call
    program.needed.add(("plugrad_rllib.tune", "trainable", "trainable"))
    first = given.with_changes(value=cst.parse_expression(f"trainable({code(space.value)})"))
    args = []
    for each in call.args:
        if each is given:
            args.append(first)
        elif each is not space:
            args.append(each)
        elif pairs:
            args.append(each.with_changes(value=cst.parse_expression(f"{{{pairs}}}")))
    if args and code(args[-1]) != code(call.args[-1]):  # the last one ends as the last one did
        args[-1] = args[-1].with_changes(comma=call.args[-1].comma)
    return call.with_changes(args=args)


def _is_algorithm(program: Program, node: cst.BaseExpression) -> bool:
    """Whether an expression is RLlib's algorithm: "PPO", PPO, args.run, config.algo_class, get_trainable_cls("PPO")."""
    if isinstance(node, cst.Attribute):
        return True  # a function of the program has a name
    if isinstance(node, cst.Call):
        return name_of(node.func) == "get_algorithm"  # it was rewritten
    name = string(node) or program.imported.get(name_of(node) or "", "")
    return name in ALGORITHMS
