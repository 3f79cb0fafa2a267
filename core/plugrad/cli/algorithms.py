"""`plugrad algorithms`: the algorithms, the spaces that they take, and the environments that they have settings for."""

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import click
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.cli.exits import debug_option
from plugrad.cli.options import toml_literal
from plugrad.cli.terminal import text_table
from plugrad.cli.trust import look_for_plugin
from plugrad.cli.tuned import STOP_TIMESTEPS, all_tuned
from plugrad.errors import ConfigError, PlugradError
from plugrad.hooks.plugin_records import list_plugins
from plugrad.hooks.registry import PLUGINS_VARIABLE, get_algorithm, use_plugin
from plugrad.importing.names import is_local_plugin
from plugrad.model_config import model_settings
from plugrad.types import DEFAULT_MODULE_ID

# --- the spaces that an algorithm takes, found by building a small learner for each ---

BACKEND = "numpy"
"""The reference backend, which needs no framework."""

ACTIONS: dict[str, Space[Any]] = {
    "Discrete": Discrete(2),
    "MultiDiscrete": MultiDiscrete([2, 3]),
    "MultiBinary": MultiBinary(2),
    "Box": Box(-1.0, 1.0, (2,)),
    "n-d Box": Box(-1.0, 1.0, (1, 2)),
    "Box without bounds": Box(-np.inf, np.inf, (2,)),
    "Tuple": Tuple([Discrete(2), Box(-1.0, 1.0, (2,))]),
    "Dict": Dict({"a": Discrete(2), "b": MultiBinary(2)}),
}
OBSERVATIONS: dict[str, Space[Any]] = {
    "vectors": Box(-np.inf, np.inf, (3,), np.float32),
    "images": Box(0, 255, (20, 20, 3), np.uint8),
    "dicts": Dict({"image": Box(0, 255, (20, 20, 3), np.uint8), "vector": Box(-1.0, 1.0, (3,), np.float32)}),
}
"""As modules read observations; those of a Discrete, MultiDiscrete or MultiBinary environment are vectors."""

SMALL = {"fcnet_hiddens": [1]}
"""A `model_config` of networks that are made in no time."""


@dataclass(frozen=True)
class AcceptedSpaces:
    """Names of the kinds of spaces that an algorithm takes, by its default network.

    Attributes:
        observations: names of `OBSERVATIONS`.
        actions: names of `ACTIONS`.
    """

    observations: tuple[str, ...]
    actions: tuple[str, ...]


def _accepted_spaces(config_class: type[AlgorithmConfig]) -> AcceptedSpaces:
    """Build a learner of each kind of space. An algorithm refuses a space by raising a `ConfigError`."""
    vector = OBSERVATIONS["vectors"]
    refusals = {name: _refusal(config_class, vector, space) for name, space in ACTIONS.items()}
    actions = tuple(name for name, refusal in refusals.items() if refusal is None)
    if not actions:
        raise next(refusal for refusal in refusals.values() if refusal is not None)
    one = ACTIONS[actions[0]]
    taken = [name for name, space in OBSERVATIONS.items() if _refusal(config_class, space, one) is None]
    return AcceptedSpaces(tuple(taken), actions)


def _refusal(
    config_class: type[AlgorithmConfig], observations: Space[Any], actions: Space[Any]
) -> ConfigError | None:
    refusal: ConfigError | None = None
    for model_config in (SMALL, {}):  # an algorithm's own network may have other settings
        config = config_class().framework(BACKEND).rl_module(model_config=model_config)
        try:
            with _no_listeners():
                config.build_learner(spaces={DEFAULT_MODULE_ID: (observations, actions)})
        except ConfigError as error:
            refusal = error
        else:
            return None
    return refusal


@contextmanager
def _no_listeners() -> Iterator[None]:
    """Build learners that nobody trains without the listeners that the user wants to hear of trained ones."""
    asked = os.environ.pop(PLUGINS_VARIABLE, None)
    try:
        yield
    finally:
        if asked is not None:
            os.environ[PLUGINS_VARIABLE] = asked


# --- algorithms ---


@dataclass(frozen=True)
class AlgorithmReport:
    """What one algorithm can be trained on.

    Attributes:
        name: its short name.
        actions: kinds of action spaces, see `plugrad.cli.algorithms`.
        observations: kinds of observation spaces.
        tuned: `{environment: tuned settings by section, with "stop_timesteps"}`.
        model_config: `{key of model_config: default}`.
        problem: why nothing is known of it; None if it can be used.
    """

    name: str
    actions: Sequence[str] = ()
    observations: Sequence[str] = ()
    tuned: dict[str, dict[str, Any]] = field(default_factory=dict)
    model_config: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None


@click.command(short_help="List the algorithms, their spaces and tuned settings.")
@click.argument("name", required=False, metavar="[NAME|FILE.py]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@debug_option
def algorithms(name: str | None, as_json: bool) -> None:
    """List the algorithms with their spaces and tuned settings; with NAME, show these and the keys of model_config.

    The kinds of spaces are those that an algorithm builds its default network for; observations that are no images
    are flattened to vectors. `plugrad train NAME ENV --tuned` trains with the settings.
    """
    if name is None:
        names = [record.name for record in list_plugins() if record.kind == "algorithm"]
        reports = [_report_or_problem(each) for each in names]
    else:
        reports = [report(use_plugin(look_for_plugin(name)).name if is_local_plugin(name) else name)]
    if as_json:
        click.echo(json.dumps([vars(each) for each in reports], indent=2))
        return
    Console().print(_algorithms_table(reports))
    for each in reports:
        if each.problem:
            click.echo(f"{each.name}: {each.problem}")
    if name is not None:
        Console().print(_model_config_table(get_algorithm(reports[0].name)))
        click.echo(_tuned_text(reports[0]), nl=False)


def report(name: str) -> AlgorithmReport:
    """Load an algorithm and report on it.

    Args:
        name: its short name.

    Returns:
        What it takes and has.

    Raises:
        PlugradError: it cannot be loaded, it takes no actions, or its tuned settings are refused.
    """
    config_class = get_algorithm(name)
    spaces = _accepted_spaces(config_class)
    tuned = {
        env: {**({STOP_TIMESTEPS: each.stop_timesteps} if each.stop_timesteps else {}), **each.settings}
        for env, each in all_tuned(name, config_class).items()
    }
    settings = model_settings(config_class.default_model_config)
    defaults = {key: each.default for key, each in settings.items()}
    return AlgorithmReport(name, spaces.actions, spaces.observations, tuned, defaults)


def _algorithms_table(reports: Sequence[AlgorithmReport]) -> Table:
    """A table of algorithms, one per row, at most 80 characters wide."""
    heads, whole = ("name", "actions", "observations", "tuned for"), ("name", "tuned for")
    table = text_table(*heads, whole=whole, width=80)
    for each in reports:
        cells = (each.name, ", ".join(each.actions), ", ".join(each.observations), "\n".join(each.tuned))
        table.add_row(*map(escape, cells))
    return table


def _model_config_table(config_class: type[Any]) -> Table:
    """A table of the keys of an algorithm's `model_config`, at most 80 characters wide."""
    table = text_table("model_config", "default", "meaning", whole=("model_config",), width=80)
    for name, each in model_settings(config_class.default_model_config).items():
        meaning = f"{each.help} ({each.expects})" if each.help else each.expects
        table.add_row(*map(escape, (name, toml_literal(each.default), meaning)))
    return table


def _tuned_text(found: AlgorithmReport) -> str:
    """The tuned settings in lines of TOML, below the commands that train with them."""
    parts = []
    for env, table in found.tuned.items():
        command = shlex.join(["plugrad", "train", found.name, env, "--tuned"])
        parts.append("\n".join([f"# {command}", *_lines(table), ""]))
    return "\n".join(parts)


def _lines(table: Mapping[str, Any]) -> Iterator[str]:
    for name, value in table.items():
        settings = (
            {f"{name}.{key}": each for key, each in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
        yield from (f"{key} = {toml_literal(each, quote=True)}" for key, each in settings.items())


def _report_or_problem(name: str) -> AlgorithmReport:
    try:
        return report(name)
    except PlugradError as error:
        return AlgorithmReport(name, problem=str(error))
    except (Exception, SystemExit) as error:  # a stranger's: it must not hide the others
        return AlgorithmReport(name, problem=f"{type(error).__name__}: {error}")
