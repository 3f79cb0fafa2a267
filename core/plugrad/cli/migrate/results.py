"""Results are flat here, with strings as keys; and the two helpers that RLlib's own examples begin and end with."""

import libcst as cst

from plugrad.cli.migrate.code import code, expression_statement, name_of, string
from plugrad.cli.migrate.names import CONSTANTS
from plugrad.cli.migrate.program import Program

_GROUPS = ("env_runners", "evaluation", "learners")
_OPTIONS = {
    "--algo": '"PPO"',
    "--env": "None",
    "--num-agents": "0",
    "--num-learners": "0",
    "--num-env-runners": "0",
    "--stop-iters": "10",
}


def constant(program: Program, node: cst.Name) -> cst.BaseExpression:
    """RLlib's name of a metric as the string that it is here.

    Args:
        program: what is known of the file.
        node: a part of its tree.

    Returns:
        What takes its place.
    """
    name = program.imported.get(node.value, "")
    return cst.SimpleString(f'"{CONSTANTS[name]}"') if name in CONSTANTS else node


def text_in_string(node: cst.FormattedStringExpression) -> cst.BaseFormattedStringContent:
    """A string literal inside an f-string as its text."""
    text = string(node.expression)
    return node if text is None else cst.FormattedStringText(text)


def flat_key(node: cst.BaseExpression) -> cst.BaseExpression:
    """`results["env_runners"]["episode_return_mean"]` with one key."""
    key = _key(node)
    if key is None or not isinstance(node, cst.Subscript):
        return node
    outer = _key(node.value)
    if outer is None or outer.split("/")[0] not in _GROUPS or not isinstance(node.value, cst.Subscript):
        return node
    if (outer, key) == ("evaluation", "env_runners"):  # evaluation has no env runners of its own here
        return node.value
    index = cst.SubscriptElement(cst.Index(cst.SimpleString(f'"{outer}/{key}"')))
    return node.value.with_changes(slice=[index])


def _key(node: cst.BaseExpression) -> str | None:
    if (
        isinstance(node, cst.Subscript)
        and len(node.slice) == 1
        and isinstance(node.slice[0].slice, cst.Index)
    ):
        return string(node.slice[0].slice.value)
    return None


def example_helper(
    program: Program, node: cst.SimpleStatementLine, line: int
) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement] | None:
    """RLlib's `add_rllib_example_script_args` and `run_rllib_example_script_experiment` in plain Python.

    Args:
        program: what is known of the file.
        node: a part of its tree.
        line: where it stood, from 1.

    Returns:
        What takes its place; None: it stays.
    """
    (statement,) = node.body
    if isinstance(statement, cst.Assign) and isinstance(statement.value, cst.Call):
        name = program.imported.get(name_of(statement.value.func) or "")
        if name == "add_rllib_example_script_args":
            return _parser(program, node, code(statement.targets[0].target))
    call = expression_statement(node)
    value = statement.value if isinstance(statement, cst.Assign) else call
    if not isinstance(value, cst.Call):
        return None
    if program.imported.get(name_of(value.func) or "") != "run_rllib_example_script_experiment":
        return None
    config, args = (code(each.value) for each in value.args[:2])
    text = (
        f"algorithm = {config}.build_algo()\n"
        f"for _ in range({args}.stop_iters):\n"
        "    results = algorithm.train()\n"
        '    print(results["num_env_steps_sampled_lifetime"], results.get("env_runners/episode_return_mean"))\n'
        "algorithm.stop()\n"
    )
    return _statements(text, node)


def _parser(
    program: Program, node: cst.SimpleStatementLine, target: str
) -> cst.FlattenSentinel[cst.BaseStatement]:
    program.needed.add(("argparse", "ArgumentParser", "ArgumentParser"))
    lines = [f"{target} = ArgumentParser()\n"]
    for option, default in _OPTIONS.items():
        kind = ", type=int" if default.isdigit() else ""
        lines.append(f'{target}.add_argument("{option}", default={default}{kind})\n')
    return _statements("".join(lines), node)


def _statements(text: str, node: cst.SimpleStatementLine) -> cst.FlattenSentinel[cst.BaseStatement]:
    first, *rest = (each for each in cst.parse_module(text).body if isinstance(each, cst.BaseStatement))
    return cst.FlattenSentinel([first.with_changes(leading_lines=node.leading_lines), *rest])
