"""Settings of a config: what one argument of a fluent call becomes, where it goes, and what is said of it."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import libcst as cst

from plugrad.config import SECTIONS as OURS
from plugrad.config.fields import FieldInfo
from plugrad.deprecation import hint_for
from plugrad.importing.names import resolve_name
from plugrad.model_config import MODEL_SETTINGS
from plugrad.replay.settings import DEFAULTS as REPLAY_SETTINGS
from plugrad_rllib.migrate import connectors, policies
from plugrad_rllib.migrate.code import code, name_of, string
from plugrad_rllib.migrate.names import HERE
from plugrad_rllib.migrate.program import Program
from plugrad_rllib.migrate.settings import HALVED, MOVED, PER_LEARNER, REPLAY_BUFFERS

_DELETE = "delete it: "
_DETAILS = re.compile(r"(head|post)_fcnet_\w+|fusionnet_\w+|\w+_initializer(_config|_kwargs)?")
"""Settings of RLlib's networks: the layers after the encoder, and first weights."""
_CONFIGS = frozenset(name for name in HERE if name.endswith("Config") and name != "AlgorithmConfig")


def rewritten(program: Program, section: str, arg: cst.Arg, line: int) -> list[tuple[str, cst.Arg]]:
    """What one argument of a fluent call becomes.

    Args:
        program: what is known of the file.
        section: the method that is called, such as "training".
        arg: the argument.
        line: where it stood, from 1.

    Returns:
        `[(method, argument)]`; nothing where the setting goes.
    """
    if arg.keyword is None:
        if arg.star:
            program.notes.add(line, f"{section}({code(arg).rstrip(',')}): rename the settings in it yourself")
        return [(section, arg)]
    name = arg.keyword.value
    if name in _TO_OTHERS:
        return _TO_OTHERS[name](program, arg, line)
    if name == "rollout_fragment_length" and string(arg.value) == "auto":
        return []  # it is the default
    if name == connectors.OF_LEARNERS:
        kept = connectors.without_frame_stacking(program, arg, line)
        return (
            [] if kept is None else _place(program, section, name, connectors.of_learner(program, kept), line)
        )
    if name in _VALUES:
        arg = _VALUES[name](program, section, arg, line)
    return _place(program, section, name, arg, line)


def _place(program: Program, section: str, name: str, arg: cst.Arg, line: int) -> list[tuple[str, cst.Arg]]:
    """The method and the name that a setting has here; nothing, with a note, if it goes."""
    if (section, name) in MOVED:
        target, here = MOVED[section, name]
        return [(target, arg.with_changes(keyword=cst.Name(here)))]
    hint = hint_of(name)
    gone = hint.removeprefix(_DELETE) if hint.startswith(_DELETE) else None
    if gone:
        program.notes.add(line, f"{section}({name}=...) was deleted: {gone}")
        return []
    ours = fields_of(program)
    if name in ours and section in OURS:
        return [(section if ours[name].is_in(section) else ours[name].section, arg)]
    if hint:
        program.notes.add(line, f"{section}({name}=...): {hint}")
    elif section in OURS and (section, name) not in _OLDER:
        program.notes.add(line, f"{section}({name}=...): plugrad has no such setting")
    return [(section, arg)]


def hint_of(name: str) -> str:
    """What to write in place of a setting of RLlib; empty where nothing is known.

    Args:
        name: of the setting.
    """
    return hint_for(name).removeprefix(" Here: ").removesuffix(".")


_OLDER = {("framework", "framework"), ("rl_module", "model_config_dict")}
"""Settings whose older names work."""


def fields_of(program: Program) -> Mapping[str, FieldInfo]:
    """The settings of the config classes that a program may use.

    Args:
        program: what is known of the file.
    """
    return _fields_of_classes(classes_of(program))


@cache
def _fields_of_classes(classes: tuple[Any, ...]) -> Mapping[str, FieldInfo]:
    found: dict[str, FieldInfo] = {}
    for each in classes:
        found |= each.fields()
    return found


def classes_of(program: Program) -> tuple[Any, ...]:
    """The config classes that a program imports; all where it imports none.

    Args:
        program: what is known of the file.
    """
    return _classes_of(program.of_rllib & _CONFIGS or _CONFIGS)


@cache
def _classes_of(names: frozenset[str]) -> tuple[Any, ...]:
    return tuple(resolve_name(":".join(HERE[name])) for name in sorted(names))


def _of_all_learners(program: Program, section: str, arg: cst.Arg, line: int) -> cst.Arg:
    """A number of rows of one learner as that of all learners, where both numbers stand in the program."""
    number = program.num_learners
    if number == 1 or code(arg.value) == "None":
        return arg
    if number is not None and isinstance(arg.value, cst.Integer):
        return arg.with_changes(value=cst.Integer(str(number * arg.value.evaluated_value)))
    assert arg.keyword is not None
    name = arg.keyword.value
    program.notes.add(
        line, f"{section}({name}=...): plugrad counts the rows of all learners: multiply by num_learners"
    )
    return arg


def _half(program: Program, section: str, arg: cst.Arg, line: int) -> cst.Arg:
    """Half of a number that stands in the program."""
    if isinstance(arg.value, cst.Integer | cst.Float):
        return arg.with_changes(value=cst.Float(str(arg.value.evaluated_value / 2)))
    assert arg.keyword is not None
    text = f"{section}({arg.keyword.value}=...): plugrad halves the squared error beside it: halve this, too"
    program.notes.add(line, text, "docs/from-rllib.md")
    return arg


def _with_a_note_on_minibatches(program: Program, section: str, arg: cst.Arg, line: int) -> cst.Arg:
    is_default = "PPOConfig" in program.of_rllib and not program.sets_minibatch_size
    if is_default and program.num_learners != 1:
        text = (
            f"num_learners={code(arg.value)}: RLlib's default minibatch_size=128 is of each learner, plugrad's of all: "
            "set training(minibatch_size=...)"
        )
        program.notes.add(line, text)
    return arg


def _with_our_name(pair: cst.BaseDictElement) -> cst.BaseDictElement:
    """`"lstm_use_prev_action": True` of RLlib's older networks, by plugrad's name."""
    key = string(pair.key) if isinstance(pair, cst.DictElement) else None
    if key in ("lstm_use_prev_action", "lstm_use_prev_reward"):
        return pair.with_changes(key=cst.SimpleString(f'"{key.removeprefix("lstm_")}"'))
    return pair


def _without_details(
    program: Program, pairs: Sequence[cst.BaseDictElement], line: int
) -> list[cst.BaseDictElement]:
    """Take out details of RLlib's own networks that the built-in ones have not, as of a `DefaultModelConfig`."""
    kept = []
    for pair in pairs:
        key = string(pair.key) if isinstance(pair, cst.DictElement) else None
        if key is not None and _DETAILS.fullmatch(key):
            program.notes.add(line, f"model_config has no {key}: it was deleted", "docs/networks.md")
        else:
            kept.append(pair)
    if kept and len(kept) < len(pairs):
        kept[-1] = kept[-1].with_changes(comma=pairs[-1].comma)
    return kept


def _with_a_note_on_own_settings(program: Program, section: str, arg: cst.Arg, line: int) -> cst.Arg:
    """Rename settings of networks, and note those that no built-in network has; a module class may read them."""
    if isinstance(arg.value, cst.Dict):
        pairs: Sequence[cst.BaseDictElement] = [_with_our_name(pair) for pair in arg.value.elements]
        if "rl_module_spec" not in program.own_code:
            pairs = _without_details(program, pairs, line)
        arg = arg.with_changes(value=arg.value.with_changes(elements=pairs))
    pairs = arg.value.elements if isinstance(arg.value, cst.Dict) else ()
    keys = [string(each.key) for each in pairs if isinstance(each, cst.DictElement)]
    unknown = [key for key in keys if key is not None and key not in MODEL_SETTINGS]
    if unknown:
        assert arg.keyword is not None
        text = (
            f"{section}({arg.keyword.value}=...): built-in networks have no {', '.join(unknown)} and refuse it; a "
            "module_class of your own gets it"
        )
        program.notes.add(line, text, "docs/networks.md")
    return arg


def _in_lower_case(program: Program, section: str, arg: cst.Arg, line: int) -> cst.Arg:
    """`gym_env_vectorize_mode="SYNC"`, and `=gym.VectorizeMode.SYNC`, by plugrad's name."""
    plain = string(arg.value) or code(arg.value).rpartition("VectorizeMode.")[2]
    if plain.isupper():
        return arg.with_changes(value=cst.SimpleString(f'"{plain.lower()}"'))
    said = (
        f'{section}(vectorization_mode={code(arg.value)}): its names are in lower case here, such as "sync"'
    )
    program.notes.add(line, said, "docs/environments.md")
    return arg


def _replay_buffer(program: Program, section: str, arg: cst.Arg, line: int) -> cst.Arg:
    """`replay_buffer_config={"type": "PrioritizedEpisodeReplayBuffer", ...}` with what plugrad's buffers have."""
    pairs = arg.value.elements if isinstance(arg.value, cst.Dict) else ()
    kept: list[cst.BaseDictElement] = []
    for pair in pairs:
        key = string(pair.key) if isinstance(pair, cst.DictElement) else None
        if isinstance(pair, cst.DictElement) and key == "type":
            theirs = string(pair.value) or program.imported.get(name_of(pair.value) or "", code(pair.value))
            if theirs in REPLAY_BUFFERS:
                pair = pair.with_changes(value=cst.SimpleString(f'"{REPLAY_BUFFERS[theirs]}"'))
            else:
                text = f'replay_buffer_config: type {theirs}: there are "uniform" and "prioritized"'
                program.notes.add(line, text, "docs/replay.md")
        elif key is not None and key not in REPLAY_SETTINGS:
            program.notes.add(line, f"replay_buffer_config has no {key}: it was deleted", "docs/replay.md")
            continue
        kept.append(pair)
    if not isinstance(arg.value, cst.Dict):
        text = f"replay_buffer_config: give a dict of {', '.join(REPLAY_SETTINGS)}"
        program.notes.add(line, text, "docs/replay.md")
        return arg
    if kept and len(kept) < len(pairs):
        kept[-1] = kept[-1].with_changes(comma=pairs[-1].comma)
    return arg.with_changes(value=arg.value.with_changes(elements=kept))


def _own_settings(program: Program, arg: cst.Arg, line: int) -> list[tuple[str, cst.Arg]]:
    """`learner_config_dict={"a": 1}` as settings of a config class of the program's own."""
    if not isinstance(arg.value, cst.Dict):
        program.notes.add(line, "learner_config_dict: derive a config class with these fields")
        return []
    program.needed.add(("dataclasses", "dataclass", "dataclass"))
    pairs = [each for each in arg.value.elements if isinstance(each, cst.DictElement)]
    for each in arg.value.elements:
        if not isinstance(each, cst.DictElement):
            text = f"learner_config_dict: {code(each).rstrip(',')} was deleted: its keys are fields of the config class"
            program.notes.add(line, text)
    return [
        ("training", arg.with_changes(keyword=cst.Name(string(each.key) or code(each.key)), value=each.value))
        for each in pairs
    ]


def _of_environments(program: Program, arg: cst.Arg, line: int) -> list[tuple[str, cst.Arg]]:
    return [("env_runners", each) for each in connectors.env_runner_settings(program, arg, line)]


def _of_evaluation(program: Program, arg: cst.Arg, line: int) -> list[tuple[str, cst.Arg]]:
    return [("evaluation", each) for each in connectors.of_evaluation(program, arg, line)]


def _policies(program: Program, section: str, arg: cst.Arg, line: int) -> cst.Arg:
    return policies.by_tuples(program, arg, line)


def _finite(program: Program, section: str, arg: cst.Arg, line: int) -> cst.Arg:
    """`vf_clip_param=None` as a number: nothing is clipped."""
    is_none = code(arg.value) == "None"
    return arg.with_changes(value=cst.parse_expression('float("inf")')) if is_none else arg


_TO_OTHERS: Mapping[str, Callable[[Program, cst.Arg, int], list[tuple[str, cst.Arg]]]] = MappingProxyType(
    {
        "learner_config_dict": _own_settings,
        connectors.OF_ENVIRONMENTS: _of_environments,
        "evaluation_config": _of_evaluation,
    }
)
"""Settings that become others, or several."""

_VALUES: Mapping[str, Callable[[Program, str, cst.Arg, int], cst.Arg]] = MappingProxyType(
    {
        **dict.fromkeys(PER_LEARNER, _of_all_learners),
        **dict.fromkeys(HALVED, _half),
        **dict.fromkeys(("model", "model_config", "model_config_dict"), _with_a_note_on_own_settings),
        "gym_env_vectorize_mode": _in_lower_case,
        "num_learners": _with_a_note_on_minibatches,
        "policies": _policies,
        "replay_buffer_config": _replay_buffer,
        "vf_clip_param": _finite,
    }
)
"""Settings of other values here, or with a note on their value."""
