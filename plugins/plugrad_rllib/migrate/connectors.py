"""Connectors: the pieces that a program's function makes, one by one; what is a setting here is set, others are named.

A function that a connector is given by is read, not called: a lambda, or a function of the file that only returns its
pieces. What it decides itself is not known, and is left to whoever reads the note.
"""

import ast
from collections.abc import Sequence

import libcst as cst

from plugrad_rllib.migrate import environments
from plugrad_rllib.migrate.code import code, name_of
from plugrad_rllib.migrate.names import HERE
from plugrad_rllib.migrate.program import Program, given_maker, reads_no_argument

OF_ENVIRONMENTS = "env_to_module_connector"
OF_LEARNERS = "learner_connector"
_STACKS = "FrameStackingLearner"
_ENVIRONMENTS = "docs/environments.md"
_WRITE = 'write what it does as a wrapper of the environment: env_wrappers=["package.module:Wrapper"]'
_CLIP = "10.0"
"""RLlib's default, and the limit here."""
_DEFAULTS = {"env_wrappers": "[]", "normalize_observations": "False", "frame_stack": "None"}
_OF_RLLIB = "ray.rllib.connectors"
"""Modules of RLlib's own pieces."""


def env_runner_settings(program: Program, arg: cst.Arg, line: int) -> list[cst.Arg]:
    """The settings that are here what the pieces of an env-to-module connector do; each other piece is noted.

    Args:
        program: what is known of the file.
        arg: `env_to_module_connector=...`.
        line: where it stood, from 1.

    Returns:
        Arguments of `env_runners(...)`.
    """
    if code(arg.value) == "None":
        return []
    maker = _expression(arg.value)
    pieces = pieces_of(program, maker)
    if pieces is None:
        text = (
            f"{OF_ENVIRONMENTS}=... was deleted: which pieces it makes depends on what the program does. "
            "MeanStdFilter is normalize_observations=True, FrameStackingEnvToModule frame_stack=4, FlattenObservations "
            "nothing; of any other piece, " + _WRITE
        )
        program.notes.add(line, text, _ENVIRONMENTS)
        return []
    settings: dict[str, str] = {}
    wrappers: list[str] = []
    for piece in pieces:
        setting, lost = _setting_of(program, piece)
        if setting is not None and setting[0] == "env_wrappers":
            wrappers.append(setting[1])
            if settings:
                lost = (
                    f"{ast.unparse(piece)} comes before {', '.join(settings)} here: wrappers are inside of it"
                )
        elif setting is not None:
            settings[setting[0]] = setting[1]
        if lost is not None:
            program.notes.add(line, f"{OF_ENVIRONMENTS}: {lost}", _ENVIRONMENTS)
    if wrappers:
        settings = {"env_wrappers": f"[{', '.join(wrappers)}]", **settings}
    found: list[cst.Arg] = []
    for name, value in settings.items():
        if isinstance(maker, ast.IfExp):  # `f if condition else None`, or the other way round
            values = (value, _DEFAULTS[name])
            first, second = values if given_maker(maker) is maker.body else values[::-1]
            value = f"{first} if {ast.unparse(maker.test)} else {second}"
        found.append(arg.with_changes(keyword=cst.Name(name), value=cst.parse_expression(value)))
    return found


def _setting_of(program: Program, piece: ast.expr) -> tuple[tuple[str, str] | None, str | None]:
    """What one piece is here, `(setting, value)`, and what a reader must know of it; None: nothing."""
    text = ast.unparse(piece)
    name = program.name_of_rllib(piece.func) if isinstance(piece, ast.Call) else None
    given = (
        {each.arg: ast.unparse(each.value) for each in piece.keywords} if isinstance(piece, ast.Call) else {}
    )
    if isinstance(piece, ast.Call) and (piece.args or None in given):
        name = None  # positional arguments are spaces, which nobody gives; `**` may be anything
    if name == "MeanStdFilter":
        limit = given.pop("clip_by_value", _CLIP)
        others = [
            f"{key}={value}" for key, value in given.items() if key not in ("multi_agent", "update_stats")
        ]
        lost = [f"clip_by_value={limit}"] if limit not in (_CLIP, "10") else []
        said = f"{text}: normalize_observations=True has no {', '.join(lost + others)}"
        return ("normalize_observations", "True"), said if lost + others else None
    if name == "FrameStackingEnvToModule":
        return ("frame_stack", given.get("num_frames", "1")), None
    if name == "FlattenObservations":
        removed = given.get("keys_to_remove", "None")
        said = f"{text}: built-in networks read every key; {_WRITE}"
        return None, None if removed == "None" else said
    if isinstance(piece, ast.Call) and isinstance(piece.func, ast.Name) and _is_own(program, piece):
        own = piece.func.id
        settings = ", ".join(f'"{key}": {value}' for key, value in given.items())
        return ("env_wrappers", f"[{own}, {{{settings}}}]" if settings else own), None
    return None, f"{text} was deleted: {_WRITE}"


def _is_own(program: Program, piece: ast.Call) -> bool:
    """Whether a piece is of a class of the program, or of one that is here: it is a wrapper, with keyword arguments."""
    assert isinstance(piece.func, ast.Name)
    local = piece.func.id
    is_here = program.imported.get(local) in HERE
    is_class = local[:1].isupper() and local in {
        *program.config_parameters,
        *program.imported,
        *program.others,
    }
    is_of_rllib = program.modules.get(local, "").startswith(_OF_RLLIB) and not is_here
    has_names = not piece.args and all(each.arg is not None for each in piece.keywords)
    return is_class and has_names and not is_of_rllib


def without_frame_stacking(program: Program, arg: cst.Arg, line: int) -> cst.Arg | None:
    """`learner_connector=...` without `FrameStackingLearner`: here the env runner stacks frames, once.

    Args:
        program: what is known of the file.
        arg: the argument.
        line: where it stood, from 1.

    Returns:
        The argument; None if it made nothing else.
    """
    if _STACKS not in program.of_rllib:
        return arg
    pieces = pieces_of(program, _expression(arg.value))
    stacking = [each for each in pieces or () if _is_frame_stacking(program, each)]
    if pieces is not None and len(stacking) == len(pieces):
        return None
    if pieces is not None and not stacking:
        return arg
    inner = arg.value.body if isinstance(arg.value, cst.Lambda) else None
    if pieces is not None and isinstance(inner, cst.List):
        kept = [each for each in inner.elements if not _is_frame_stacking(program, _expression(each.value))]
        kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return arg.with_changes(value=arg.value.with_changes(body=inner.with_changes(elements=kept)))
    text = f"{OF_LEARNERS}: take {_STACKS} out: the env runner stacks frames, by frame_stack=4"
    program.notes.add(line, text)
    return arg


def of_learner(program: Program, arg: cst.Arg) -> cst.Arg:
    """`learner_connector=f` as `learner_connector=learner_pieces(f)`, which calls RLlib's pieces.

    Args:
        program: what is known of the file.
        arg: the argument.

    Returns:
        What takes its place; of `None if condition else f` only `f` is another.
    """
    value = arg.value
    if isinstance(value, cst.IfExp):
        body, orelse = (_by_pieces(program, each) for each in (value.body, value.orelse))
        return arg.with_changes(value=value.with_changes(body=body, orelse=orelse))
    return arg.with_changes(value=_by_pieces(program, value))


def _by_pieces(program: Program, make: cst.BaseExpression) -> cst.BaseExpression:
    if code(make) == "None":
        return make
    program.needed.add(("plugrad_rllib.learner_connectors", "learner_pieces", "learner_pieces"))
    return cst.Call(cst.Name("learner_pieces"), [cst.Arg(make.with_changes(lpar=(), rpar=()))])


def _is_frame_stacking(program: Program, piece: ast.expr) -> bool:
    return isinstance(piece, ast.Call) and program.name_of_rllib(piece.func) == _STACKS


def is_replaced(program: Program, function: str) -> bool:
    """Whether a function of the file only makes pieces that are settings here, so that nothing calls it any more.

    Args:
        program: what is known of the file.
        function: its name.

    Returns:
        Whether it goes.
    """
    if function not in program.only_connectors:
        return False
    pieces = pieces_of(program, ast.Name(function, ast.Load()))
    if pieces is None:
        return False
    return all(_setting_of(program, each)[1] is None or _is_frame_stacking(program, each) for each in pieces)


def without_function(
    program: Program, node: cst.SimpleStatementLine, line: int
) -> cst.RemovalSentinel | None:
    """Take out `name = lambda ...: ...` where `is_replaced` says so.

    Args:
        program: what is known of the file.
        node: a part of its tree.
        line: where it stood, from 1.

    Returns:
        What takes its place; None: it stays.
    """
    (statement,) = node.body
    if not (isinstance(statement, cst.Assign) and isinstance(statement.value, cst.Lambda)):
        return None
    gone = all(is_replaced(program, code(each.target)) for each in statement.targets)
    return cst.RemoveFromParent() if gone else None


def pieces_of(program: Program, maker: ast.expr) -> Sequence[ast.expr] | None:
    """The pieces that a connector's function returns.

    Args:
        program: what is known of the file.
        maker: the function: a lambda, or the name of a function of the file; or one of them on a condition, else None.

    Returns:
        The expressions that make the pieces; None: it cannot be read off.
    """
    maker = given_maker(maker)
    returned = program.returned.get(maker.id) if isinstance(maker, ast.Name) else None
    if isinstance(maker, ast.Lambda) and reads_no_argument(maker.body, maker.args):
        returned = maker.body
    if isinstance(returned, ast.List | ast.Tuple):
        return None if any(isinstance(each, ast.Starred) for each in returned.elts) else returned.elts
    return [returned] if isinstance(returned, ast.Call) else None


def _expression(node: cst.BaseExpression) -> ast.expr:
    return ast.parse(f"({code(node)}\n)", mode="eval").body


def of_evaluation(program: Program, arg: cst.Arg, line: int) -> list[cst.Arg]:
    """`evaluation_config=...` as the settings of `evaluation(...)` that have the same here; others are noted.

    Args:
        program: what is known of the file.
        arg: the argument.
        line: where it stood, from 1.

    Returns:
        Arguments of `evaluation(...)`.
    """
    pairs = _settings_in(arg.value)
    if pairs is None:
        text = (
            "evaluation(evaluation_config=...) was deleted: evaluation has the settings of training; others are "
            "evaluation(evaluation_explore=..., evaluation_env=..., evaluation_env_config={...})"
        )
        program.notes.add(line, text)
        return []
    found = []
    env = dict(pairs).get("env")
    for name, value in pairs:
        if name in ("env", "env_config"):
            if name == "env":
                value = environments.by_function(program, value)
            elif env is None:
                program.notes.add(
                    line, "evaluation_env_config: keyword arguments, as env_config has them here"
                )
            else:
                value = environments.as_keywords(program, env, value)
            found.append(arg.with_changes(keyword=cst.Name(f"evaluation_{name}"), value=value))
        elif name == "explore":
            found.append(arg.with_changes(keyword=cst.Name("evaluation_explore"), value=value))
        else:
            written = f"evaluation(evaluation_config=...): {name}={ast.unparse(_expression(value))}"
            program.notes.add(line, f"{written} was deleted: evaluation has the settings of training")
    return found


def _settings_in(value: cst.BaseExpression) -> list[tuple[str, cst.BaseExpression]] | None:
    """The settings of `{"env": e}`, `dict(env=e)` and `PPOConfig.overrides(env=e)`; None if they cannot be read off."""
    if code(value) == "None":
        return []
    found: list[tuple[str, cst.BaseExpression]] = []
    if isinstance(value, cst.Dict):
        for pair in value.elements:
            key = _expression(pair.key) if isinstance(pair, cst.DictElement) else None
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                return None
            found.append((key.value, pair.value))
        return found
    if not (isinstance(value, cst.Call) and name_of(value.func) in ("dict", "overrides")):
        return None
    for each in value.args:
        if each.keyword is None:
            return None
        found.append((each.keyword.value, each.value))
    return found
