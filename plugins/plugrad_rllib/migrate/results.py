"""Results are flat here, with strings as keys."""

import libcst as cst

from plugrad.columns import Columns
from plugrad_rllib.migrate.code import as_one, name_of_method, string
from plugrad_rllib.migrate.names import CONSTANTS, HERE
from plugrad_rllib.migrate.program import Program

_GROUPS = ("env_runners", "evaluation", "learners")
_NUM_ENV_STEPS = "num_env_steps_sampled_lifetime"
_OF_EPISODES = {
    "agent_episode_returns_mean",
    "episode_len_mean",
    "episode_return_max",
    "episode_return_mean",
    "episode_return_min",
    "module_episode_returns_mean",
    "num_episodes",
}
_KEYS = {
    "env_runners": {
        *_OF_EPISODES,
        "num_agent_steps_sampled",
        "num_env_steps_sampled",
        "num_module_steps_sampled",
    },
    "evaluation": _OF_EPISODES,
}
"""What the parts of plugrad's results have."""
_UNKNOWN = "{part}: plugrad has no {key}; there are {keys}"
_UNCLEAR = '{name}["env_runners"]: what evaluate() returns has its keys without "env_runners"'


def constant(program: Program, node: cst.Name) -> cst.BaseExpression:
    """RLlib's name of a metric as the string that it is here, and its class of model settings as `dict`.

    Args:
        program: what is known of the file.
        node: a part of its tree.

    Returns:
        What takes its place.
    """
    name = program.imported.get(node.value, "")
    if name == "DefaultModelConfig":
        return cst.Name("dict")
    return cst.SimpleString(f'"{CONSTANTS[name]}"') if name in CONSTANTS else node


def column(program: Program, node: cst.Attribute) -> cst.Attribute:
    """`SampleBatch.OBS` as `Columns.OBS`.

    Args:
        program: what is known of the file.
        node: a part of its tree.

    Returns:
        What takes its place.
    """
    is_of_batches = (
        isinstance(node.value, cst.Name) and program.imported.get(node.value.value) == "SampleBatch"
    )
    if not is_of_batches or node.attr.value not in vars(Columns):
        return node
    program.needed.add((*HERE["Columns"], "Columns"))
    return node.with_changes(value=cst.Name("Columns"))


def text_in_string(
    before: cst.FormattedStringExpression, node: cst.FormattedStringExpression
) -> cst.BaseFormattedStringContent:
    """RLlib's name of a metric inside an f-string as text of it.

    Args:
        before: a part of an f-string.
        node: the same after its names were replaced.

    Returns:
        What takes its place.
    """
    text = string(node.expression) if isinstance(before.expression, cst.Name) else None
    is_plain = node.conversion is None and node.format_spec is None and node.equal is None
    return cst.FormattedStringText(text) if text is not None and is_plain else node


def with_other_quotes(
    before: cst.FormattedString, node: cst.FormattedString
) -> cst.FormattedString | cst.SimpleString:
    """An f-string whose parts have no quotation marks of its own kind, which Python takes from 3.12 on only.

    Args:
        before: an f-string.
        node: the same after its names were replaced.

    Returns:
        What takes its place: a plain string where nothing but text is left.
    """
    texts = [each.value for each in node.parts if isinstance(each, cst.FormattedStringText)]
    had_names = any(isinstance(each, cst.FormattedStringExpression) for each in before.parts)
    is_text = len(texts) == len(node.parts) and not any(brace in text for text in texts for brace in "{}")
    if had_names and is_text and node.start.lower() == f"f{node.quote}":
        text = "".join(texts).replace("evaluation/env_runners/", "evaluation/")
        return cst.SimpleString(f"{node.quote}{text}{node.quote}", lpar=node.lpar, rpar=node.rpar)
    swapped = _OtherQuotes(node.quote)
    parts = [each.visit(swapped) for each in node.parts]
    return node.with_changes(parts=parts)


class _OtherQuotes(cst.CSTTransformer):
    """Swaps the quotation marks of one kind."""

    def __init__(self, quote: str) -> None:
        super().__init__()
        self.quote = quote

    def leave_SimpleString(
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.SimpleString:
        text, other = updated_node.raw_value, "'" if '"' in self.quote else '"'
        if updated_node.quote != self.quote or other in text:
            return updated_node
        quote = other * len(self.quote)
        return updated_node.with_changes(value=f"{updated_node.prefix}{quote}{text}{quote}")


def read(program: Program, node: cst.BaseExpression, line: int) -> cst.BaseExpression:
    """`results["env_runners"]["episode_return_mean"]` with one key, and the keys that are others here.

    Args:
        program: what is known of the file.
        node: a part of its tree.
        line: where it stood, from 1.

    Returns:
        What takes its place.
    """
    whole, key = _read(node)
    if whole is None or key is None:
        return node
    part = _part(program, whole)
    if part == "evaluation" and key in ("env_runners", "evaluation"):  # here it has no env runners of its own
        return whole
    if part == "env_runners" and key == _NUM_ENV_STEPS:
        results, _ = _read(whole)
        if results is not None:
            return _with_whole(node, results)
    if part == "evaluation" and key == "num_env_steps_sampled":
        steps = f'{as_one(whole)}["episode_len_mean"] * {as_one(whole)}["num_episodes"]'
        return cst.parse_expression(f"round({steps})")
    if part is not None and key.split("/")[0] not in _KEYS[part] | program.logged:
        program.notes.add(line, _UNKNOWN.format(part=part, key=key, keys=", ".join(sorted(_KEYS[part]))))
    if isinstance(whole, cst.Name) and program.results.get(whole.value, "") is None and key == "env_runners":
        program.notes.add(line, _UNCLEAR.format(name=whole.value))
    if not (isinstance(node, cst.Subscript) and isinstance(whole, cst.Subscript)):
        return node
    results, outer = _read(whole)
    is_evaluation = results is not None and _part(program, results) == "evaluation"
    if outer is None or not (is_evaluation or outer.split("/")[0] in _GROUPS):
        return node
    index = cst.SubscriptElement(cst.Index(cst.SimpleString(f'"{outer}/{key}"')))
    return whole.with_changes(slice=[index])


def _read(node: cst.BaseExpression) -> tuple[cst.BaseExpression | None, str | None]:
    """`(x, "a")` of `x["a"]` and of `x.get("a")`, else Nones."""
    if isinstance(node, cst.Subscript) and len(node.slice) == 1:
        index = node.slice[0].slice
        return node.value, string(index.value) if isinstance(index, cst.Index) else None
    if isinstance(node, cst.Call) and name_of_method(node) == "get" and node.args:
        return cst.ensure_type(node.func, cst.Attribute).value, string(node.args[0].value)
    return None, None


def _with_whole(node: cst.BaseExpression, whole: cst.BaseExpression) -> cst.BaseExpression:
    if isinstance(node, cst.Call):
        return node.with_changes(func=cst.ensure_type(node.func, cst.Attribute).with_changes(value=whole))
    return node.with_changes(value=whole)


def _part(program: Program, node: cst.BaseExpression) -> str | None:
    """Which part of the results an expression is: "evaluation", "env_runners", or None."""
    if isinstance(node, cst.Name):
        return program.results.get(node.value)
    if isinstance(node, cst.Call) and name_of_method(node) == "evaluate" and not node.args:
        return "evaluation"
    key = _read(node)[1]
    return key if key in _KEYS else None
