"""Environments: `register_env` becomes a function, wrappers of PettingZoo go, and one dict of settings stays one."""

from collections.abc import Mapping

import libcst as cst

from plugrad_rllib.migrate.code import argument, as_one, code, expression_statement, name_of, string
from plugrad_rllib.migrate.names import HERE, NOT_NEEDED, SPACES_OF_AGENTS
from plugrad_rllib.migrate.program import Program

_GROUPED = "with_agent_groups"
"""RLlib's method of a `MultiAgentEnv` that groups agents."""


def as_function(
    program: Program, node: cst.SimpleStatementLine, line: int
) -> cst.BaseStatement | cst.RemovalSentinel | None:
    """`register_env("name", creator)` as a function that takes the settings as keywords.

    Args:
        program: what is known of the file.
        node: a part of its tree.
        line: where it stood, from 1.

    Returns:
        What takes its place; None: it stays.
    """
    call = expression_statement(node)
    if call is None or not _registers(program, call) or len(call.args) != 2:
        return None
    name = string(call.args[0].value)
    function = program.environments.get(name or "")
    if function is None:
        program.notes.add(line, "register_env: give .environment(...) the function", "docs/environments.md")
        return None
    creator = call.args[1].value
    if isinstance(creator, cst.Lambda):
        taken = [each.name.value for each in creator.params.params]
        text = f"def {function}({f'**{taken[0]}' if taken else ''}):\n    return {as_one(creator.body)}\n"
    else:
        text = f"def {function}(**env_config):\n    return {as_one(creator)}(env_config)\n"
    return cst.parse_statement(text).with_changes(leading_lines=node.leading_lines)


def unwrapped(program: Program, call: cst.Call) -> cst.BaseExpression:
    """`PettingZooEnv(env)` as `env`, `env.with_agent_groups(...)` and `self.get_action_space(agent)`.

    Args:
        program: what is known of the file.
        call: a call.

    Returns:
        What takes its place.
    """
    groups_agents = "MultiAgentEnv" in program.of_rllib and _GROUPED not in program.methods
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == _GROUPED and groups_agents:
        program.needed.add((*HERE["GroupAgentsWrapper"], "GroupAgentsWrapper"))
        return cst.Call(cst.Name("GroupAgentsWrapper"), [cst.Arg(call.func.value), *call.args])
    if isinstance(call.func, cst.Attribute) and len(call.args) == 1 and code(call.func.value) == "self":
        spaces = SPACES_OF_AGENTS.get(call.func.attr.value)
        defines = call.func.attr.value in program.methods
        if spaces is not None and not defines and "MultiAgentEnv" in program.of_rllib:
            return cst.parse_expression(f"self.{spaces}[{code(call.args[0].value)}]")
    name = program.imported.get(name_of(call.func) or "")
    if name in NOT_NEEDED and name.endswith("Env") and len(call.args) == 1:
        return call.args[0].value
    return call


def with_possible_agents(body: cst.BaseSuite) -> cst.BaseSuite:
    """A class's body that sets `possible_agents` where RLlib took `agents` for it."""
    if "possible_agents" in code(body):
        return body
    changed = body.visit(_PossibleAgents())
    return changed if isinstance(changed, cst.BaseSuite) else body


class _PossibleAgents(cst.CSTTransformer):
    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        targets, value = updated_node.targets, updated_node.value
        if len(targets) != 1 or code(targets[0].target) not in ("self.agents", "self._agent_ids"):
            return updated_node
        if isinstance(value, cst.Set):  # agents have an order
            value = cst.List(value.elements)
        return updated_node.with_changes(
            targets=[*targets, _assign_target("self.possible_agents")], value=value
        )


def _assign_target(text: str) -> cst.AssignTarget:
    expression = cst.parse_expression(text)
    assert isinstance(expression, cst.Attribute)
    return cst.AssignTarget(expression)


def of_config(program: Program, call: cst.Call) -> cst.Call:
    """The arguments of `.environment(...)`: the function of a registered name, and settings as keywords.

    Args:
        program: what is known of the file.
        call: a call.

    Returns:
        What takes its place.
    """
    env = argument(call, "env", 0)
    if env is None:
        return call
    value = by_function(program, env.value)
    if code(value) != code(env.value):
        return call.with_changes(args=[a.with_changes(value=value) if a is env else a for a in call.args])
    settings = argument(call, "env_config", 1)
    if settings is None:
        return call
    value = as_keywords(program, env.value, settings.value)
    return call.with_changes(
        args=[each.with_changes(value=value) if each is settings else each for each in call.args]
    )


def is_atari(program: Program, node: cst.Attribute) -> cst.BaseExpression | None:
    """`config.is_atari` as `is_atari(config)`.

    Args:
        program: what is known of the file.
        node: a part of its tree.

    Returns:
        What takes its place; None: it is something else.
    """
    if node.attr.value != "is_atari" or name_of(node.value) not in program.configs:
        return None
    program.needed.add(("plugrad_rllib.atari", "is_atari", "is_atari"))
    return cst.Call(cst.Name("is_atari"), [cst.Arg(node.value)])


def by_function(program: Program, env: cst.BaseExpression) -> cst.BaseExpression:
    """An environment with the functions of registered names in place of these names."""
    found = env.visit(_Functions(program.environments))
    return found if isinstance(found, cst.BaseExpression) else env


def as_keywords(
    program: Program, env: cst.BaseExpression, settings: cst.BaseExpression
) -> cst.BaseExpression:
    """An environment's one dict of settings as its keyword arguments.

    Args:
        program: what is known of the file.
        env: the environment.
        settings: the dict that RLlib gives it.

    Returns:
        The dict of keyword arguments. That of a registered name or a Gymnasium id stays: its function takes keywords.
    """
    if not isinstance(env, cst.Name) or env.value in program.environments.values():
        return settings
    parameter = program.config_parameters.get(env.value, "config") or "config"
    return cst.parse_expression(f'{{"{parameter}": {code(settings)}}}')


class _Functions(cst.CSTTransformer):
    """Replaces names of registered environments by their functions."""

    def __init__(self, functions: Mapping[str, str]) -> None:
        super().__init__()
        self.functions = functions

    def leave_SimpleString(
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.BaseExpression:
        function = self.functions.get(string(updated_node) or "")
        return updated_node if function is None else cst.Name(function)


def _registers(program: Program, call: cst.Call) -> bool:
    name = name_of(call.func)
    return name == "register_env" or program.imported.get(name or "") == "register_env"
