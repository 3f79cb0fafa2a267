"""Trains with a plugin in a process of its own: it fits if an update with it is done.

What only loads it may miss: two plugins that answer one hook, a hook that cannot be wrapped, a loss that raises.
"""

import inspect
import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.cli import COMMANDS
from plugrad.cli.backends import missing_answers
from plugrad.cli.trust import look_for_plugin
from plugrad.errors import ConfigError, PluginConflictError, PluginError, PlugradError
from plugrad.hooks.algorithm_spec import AlgorithmSpec
from plugrad.hooks.author_line import shows_all_frames
from plugrad.hooks.build_spec import AlgorithmBuildSpec
from plugrad.hooks.manager import (
    Plugin,
    implementations,
    is_wrapper,
    specifications,
)
from plugrad.hooks.plugin_records import PluginRecord, list_plugins
from plugrad.hooks.registry import (
    PLUGINS_VARIABLE,
    get_algorithm,
    load_algorithm,
    load_backend,
    load_collective,
    load_command,
    load_launcher,
    load_listener,
    use_plugin,
)
from plugrad.results import flatten
from plugrad.testing.tiny_learners import ActorCriticLearner, tiny_batch, tiny_config, weights_of
from plugrad.testing.tiny_task import TASKS, TinyTask, record_demonstrations, tiny_algorithm_config

_REFERENCE = "numpy"
"""The backend that needs no framework; its gradients are finite differences."""
_MANY_WEIGHTS = 2_000
"""With more of them a step of the reference takes seconds."""
_ITERATIONS = 100
"""Within which an algorithm must have made an update."""


def answer_check(asked: int, answered: int) -> None:
    """The process of `plugrad.cli.plugins.check_plugin`.

    Args:
        asked: an open file with the question.
        answered: one for the report.
    """
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.environ.pop(PLUGINS_VARIABLE, None)  # others must not disturb
    with open(asked, encoding="utf-8") as file:
        found, record = json.load(file)
    try:
        _check(None if record is None else PluginRecord(**record), found)
    except (Exception, SystemExit) as error:
        if shows_all_frames():
            traceback.print_exception(error)
        found["reason"] = _words(error)
    with open(answered, "w", encoding="utf-8") as file:
        json.dump(found, file)


def _check(asked: PluginRecord | None, found: dict[str, Any]) -> None:
    """Load a plugin and train with it, or raise; what is known until then is in `found`."""
    if asked is None:
        plugin, needs = use_plugin(look_for_plugin(found["value"])), None
        found.update(name=plugin.name, kind=plugin.tier)
    else:
        name, needs = asked.name, asked.requires
        classes = {"collective": load_collective, "launcher": load_launcher}
        if asked.kind in classes:
            classes[asked.kind](name)
            return
        if asked.kind == "plugin" and isinstance(load_command(name), click.Command):
            if name in COMMANDS:
                raise PluginError(
                    f"plugrad {name} is a command of plugrad itself, which comes first: give yours another name"
                )
            found["is_command"] = True
            return
        loaders = {"backend": load_backend, "algorithm": load_algorithm, "plugin": load_listener}
        plugin = loaders[asked.kind](name)
    found["hooks"] = [
        {"hook": hook, "wrapper": is_wrapper(function), "where": _place(function)}
        for hook, function in implementations(plugin).items()
    ]
    records = (each for each in list_plugins() if each.kind == "backend" and each.requires and each.installed)
    frameworks = {each.requires: each.name for each in records}
    needed = frameworks[needs] if needs and needs in frameworks else None
    if plugin.tier == "backend":
        found["trained"] = _train_backend(plugin)
    elif plugin.tier == "algorithm":
        found["trained"] = _train_algorithm(plugin.name, needed, tuple(frameworks.values()))
    else:
        found["trained"] = _train_tiny(needed or _REFERENCE, plugin.name)


def _place(function: Callable[..., Any]) -> str:
    """`module:line`."""
    written = inspect.unwrap(function)
    return f"{written.__module__}:{written.__code__.co_firstlineno}"


def _train_backend(plugin: Plugin) -> str:
    if missing := missing_answers(plugin):
        raise PluginError(f"{plugin} does not answer {', '.join(missing)}: see docs/hooks.md")
    answers = {hook for hook, function in implementations(plugin).items() if not is_wrapper(function)}
    if others := sorted(answers & specifications((AlgorithmBuildSpec, AlgorithmSpec)).keys()):
        others_said = f"{plugin} answers {', '.join(others)}, which an algorithm answers"
        raise PluginConflictError(f"{others_said}: no algorithm could be used with it")
    return _train_tiny(plugin.name)


def _train_tiny(backend: str, *listeners: str) -> str:
    """An actor-critic of 47 weights: one update."""
    config = tiny_config(backend, compile="auto").plugins(*listeners)
    learner = ActorCriticLearner(config=config)
    learner.build()
    before = weights_of(learner)
    learner.update(tiny_batch())
    if not listeners and np.array_equal(weights_of(learner), before):
        raise PluginError(f"backend {backend!r}: an update changed no weight")
    return f"of a tiny actor-critic on {backend!r}"


def _train_algorithm(name: str, needed: str | None, installed: Sequence[str]) -> str:
    """On the backend that it needs; else on the reference, and if that fails or is slow on one with a framework."""
    own, default = get_algorithm(name)().backend, AlgorithmConfig().backend
    backends = [_REFERENCE, default] if default in installed else [_REFERENCE, *installed[:1]]
    if needed or own != default:
        backends = [needed or own]
    failed: dict[str, Exception] = {}
    for backend in backends:
        try:
            return f"on {backend!r} with {_train_on(name, backend, is_last=backend == backends[-1])}"
        except (PluginError, PluginConflictError):
            raise  # another backend would not change it
        except Exception as error:
            failed[backend] = error
    first, *others = failed.items()
    if others:
        first[1].add_note("; ".join(f"on {backend!r} {_words(error)}" for backend, error in others))
    raise first[1]


def _train_on(name: str, backend: str, *, is_last: bool) -> str:
    """The first of the tiny tasks whose actions the algorithm takes, until it has made an update."""
    refused: list[ConfigError] = []
    for kind, task in TASKS.items():
        with TemporaryDirectory() as folder:

            def recorded(task: type[TinyTask] = task, path: Path = Path(folder, "episodes")) -> Path:
                record_demonstrations(task, path)
                return path

            config = tiny_algorithm_config(name, backend, task, recorded)
            try:
                algorithm = config.build_algo()
            except ConfigError as error:
                refused.append(error)
                continue
            try:
                size = sum(each.size for each in flatten(algorithm.learner_group.get_weights()).values())
                if size > _MANY_WEIGHTS and backend == _REFERENCE and not is_last:
                    raise ConfigError(f"{size} weights are many for finite differences")
                results = next(
                    filter(None, (algorithm.train()["learners"] for _ in range(_ITERATIONS))), None
                )
            finally:
                algorithm.stop()
        if results is None:
            raise PluginError(f"algorithm {name!r} made no update in {_ITERATIONS} iterations")
        losses = {each: loss for each, loss in flatten(results).items() if each.endswith("total_loss")}
        if not losses or not all(map(math.isfinite, losses.values())):
            raise PluginError(f"algorithm {name!r}: an update reports {losses or 'no total_loss'}")
        return f"{kind} actions"
    raise refused[0]


def _words(error: BaseException) -> str:
    notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()) if "\n" not in note)
    text = f"{' '.join(str(error).split())}{notes}"
    where = "" if shows_all_frames() else " (--debug shows where)"
    return text if isinstance(error, PlugradError) else f"{type(error).__name__}: {text}{where}"
