"""Names are words of the field: those that earlier versions used instead name nothing any more.

`WORDS` are part of no name. `NAMES` are no name as a whole: as a part of one they are ordinary English.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
ROOTS = ("core", "backends", "plugins", "tests", "benchmarks", "examples")
WORDS = {
    "hooked": "hook_methods",
    "front": "a wrapped method",
    "fronts": "wrapped methods",
    "wear": "install",
    "remembering": "state",
    "innermost": "base_implementation",
    "relay": "call_hook",
    "shape watch": "ShapeCheck",
    "blame": "error_note",
    "unpackaged": "local_plugin",
    "update call": "UpdateRun",
    "weighed": "scaled",
    "evened": "pad_minibatches",
    "provenance": "plugin_manifest",
    "tower": "encoder",
    "towers": "encoders",
    "bury": "remove_worker",
    "close ranks": "renumber_ranks",
    "informed": "synced",
    "ticket": "future",
    "tickets": "futures",
    "ledger": "counters",
    "stepper": "optimizer_adapter",
    "gathering": "minibatch_gather",
    "moody": "faulty",
    "gadgets": "helpers",
}
"""`{word: what to write}`."""
NAMES = {
    "lend": "functional_call",
    "tell": "notify",
    "watch": "shape_check",
    "watching": "op_recorder",
    "Cut": "MinibatchSpec",
    "Units": "SampleCount",
    "units": "samples",
    "units_of": "sample_counts",
    "share": "shard",
    "marked": "mark_nonfinite",
    "agree": "barrier",
    "summed": "all_reduce_metrics",
    "meet": "barrier",
    "Star": "rank0_reduce",
    "pieces": "chunks",
    "adopt": "wrap",
    "adopt_module": "wrap_module",
    "adopt_optimizer": "wrap_optimizer",
    "adopted": "wrapped",
    "stepping": "optimizers",
    "values_only": "inference_mode",
    "cut": "truncate",
    "carried_state": "recurrent_state",
    "repeatable": "replayable_env",
}
"""`{name of a module, class, function, method or public parameter: what to write}`."""
EXCEPTIONS = {
    (
        "core/plugrad/learner/update/connectors.py",
        "pieces",
    ): "RLlib's word for the parts of a connector pipeline",
    ("tests/core/test_checkpoint_crash.py", "watch"): "ordinary English: it watches a process",
    ("tests/core/watched_openings.py", "watch"): "ordinary English: it watches a process",
}


def names_in(code: str, *, is_package: bool = True) -> Iterator[str]:
    """Names of classes, functions and methods; of a package also the parameters of public ones."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_package and is_public(node.name):
            arguments = node.args
            yield from (each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))


def is_public(name: str) -> bool:
    return not name.startswith("_") or name.endswith("__")


def words_of(name: str) -> str:
    """`ShapeWatch_of` as ` shape watch of `."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return f" {' '.join(apart.split('_'))} "


def old_words(name: str) -> list[str]:
    """What is wrong with a name, with what to write."""
    words, whole = words_of(name), name.strip("_")
    found = [f"{name}: say {new}, not {old}" for old, new in WORDS.items() if f" {old} " in words]
    return found + ([f"{name}: say {NAMES[whole]}"] if whole in NAMES else [])


@pytest.mark.parametrize("root", ROOTS)
def test_no_name_is_an_old_word(root):
    wrong = {}
    for path in sorted((REPOSITORY / root).rglob("*.py")):
        place = str(path.relative_to(REPOSITORY))
        is_package = root in ("core", "backends", "plugins")
        for name in {path.stem, *names_in(path.read_text(encoding="utf-8"), is_package=is_package)}:
            if (place, name) not in EXCEPTIONS and old_words(name):
                wrong.setdefault(place, []).append(old_words(name))
    assert wrong == {}


@pytest.mark.parametrize(("place", "name"), EXCEPTIONS)
def test_exceptions_are_needed(place, name):
    assert name in set(names_in((REPOSITORY / place).read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("class ShapeWatch: ...", True),
        ("class Learner:\n    def wear_fronts(self): ...", True),
        ("def close_ranks(): ...", True),
        ("def bury(rank): ...", True),
        ("def update(batch, *, pieces): ...", True),
        ("def _first_tickets(): ...", True),
        ("def _update(units): ...", False),
        ("class Wearable:\n    def towering(self, pieces_of): ...", False),
    ],
)
def test_old_words_are_found(code, wrong):
    assert any(old_words(name) for name in names_in(code)) == wrong
