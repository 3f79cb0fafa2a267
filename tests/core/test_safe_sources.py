"""Nothing in the source reads or writes a format that can run code; every exception is named with its reason."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for top in ("core", "backends", "plugins") for path in (ROOT / top).rglob("*.py"))

MODULES = {
    *("pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "copyreg"),
    *("zipfile", "tarfile", "zipimport", "h5py", "yaml", "msgpack", "runpy", "code"),
}
"""Not to be imported."""

CALLS = {
    *(
        "torch.load",
        "torch.save",
        "torch.package",
        "torch.jit",
        "torch.export",
        "torch.serialization",
        "torch.hub",
    ),
    *("tf.saved_model", "tf.train.Checkpoint", "keras.saving", "keras.models"),
    *("np.load", "np.save", "np.savez", "np.savez_compressed", "np.fromfile", "numpy.load", "numpy.save"),
    *("shutil.make_archive", "shutil.unpack_archive"),
}
"""Not to be named, also not as the beginning of a longer name."""

NAMES = {
    *(
        "load_model",
        "save_model",
        "load_weights",
        "save_weights",
        "allow_pickle",
        "weights_only",
        "safe_mode",
    ),
}
"""Not to be called or given, whatever they belong to."""

BUILTINS = {"eval", "exec", "compile", "__import__"}

REASONS = {
    (
        "plugrad/env_runners/workers.py",
        "pickle",
    ): "weights for env runners in processes of this one, encoded once",
    (
        "plugrad_rllib/migrate/unpickle_child.py",
        "pickle",
    ): "RLlib's weights, in a process of its own, arrays only",
    ("plugrad/group/learner_actor.py", "pickle"): "between processes of one group: the driver's config",
    (
        "plugrad/group/learner_actor.py",
        "cloudpickle",
    ): "between processes of one group: a new learner's config",
    ("plugrad/env_runners/actor.py", "pickle"): "between processes of one group: the driver's config",
    (
        "plugrad/env_runners/remote_env_runners.py",
        "cloudpickle",
    ): "between processes of one group: the config for its actors",
    (
        "plugrad/group/worker_group.py",
        "cloudpickle",
    ): "between processes of one group: the config for its actors",
    ("plugrad/learner/peers.py", "pickle"): "between processes of one job: episodes and state",
    **{
        ("plugrad/workers/answers.py", name): "between processes of one group: exceptions of the user's code"
        for name in ("pickle", "cloudpickle")
    },
    (
        "plugrad/workers/process.py",
        "pickle",
    ): "over a socket that only this process and one that it started have",
    **{
        (f"plugrad/testing/{file}", "cloudpickle"): "over a pipe between a test and a process that it started"
        for file in ("members.py", "member_process.py")
    },
    **{
        (f"plugrad/{file}", name): "over a socket that only this process and one that it started have"
        for file in ("sampling/async_envs/envs.py", "sampling/async_envs/worker.py")
        for name in ("pickle", "cloudpickle")
    },
}
"""`(file, name)` that may be there, and why."""


def found_in(tree: ast.AST) -> Iterator[str]:
    """The forbidden names of a module, each as the lists above have it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name for alias in node.names if (name := alias.name.split(".")[0]) in MODULES)
        elif isinstance(node, ast.ImportFrom):
            yield from _from(node)
        elif isinstance(node, ast.Attribute):
            yield from (name for name in CALLS if _dotted(node) == name)
        elif isinstance(node, ast.Call):
            yield from {_last(node.func), *(keyword.arg for keyword in node.keywords)} & NAMES
            yield from {_dotted(node.func).removeprefix("builtins.")} & BUILTINS


def _from(node: ast.ImportFrom) -> Iterator[str]:
    module = node.module or ""
    yield from {module.split(".")[0]} & MODULES
    for alias in node.names:
        yield from {f"{module}.{alias.name}".replace("tensorflow.", "tf."), module} & CALLS
        yield from {alias.name} & NAMES


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _last(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def test_no_source_reads_a_format_that_can_run_code() -> None:
    found = {
        ("/".join(path.relative_to(ROOT).parts[1:]), name)
        for path in SOURCES
        for name in found_in(ast.parse(path.read_text()))
    }
    assert len(SOURCES) > 100
    assert found == REASONS.keys(), "a new exception needs its reason here; a reason that nothing needs goes"


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "import pickle as harmless",
        "from pickle import loads",
        "from torch import load",
        "import torch; torch.load(path)",
        "torch.jit.load(path)",
        "read = torch.load",
        "np.load(path, allow_pickle=False)",
        "model.save_weights(path)",
        "tf.keras.models.load_model(path)",
        "from keras.saving import load_model",
        "eval(text)",
        "builtins.exec(text)",
        "import xml, zipfile",
        "tf.saved_model.load(path)",
    ],
)
def test_the_search_finds(line: str) -> None:
    assert list(found_in(ast.parse(line)))
