"""Weights of RLlib's modules as a checkpoint of plugrad's."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from plugrad.checkpoint import save_checkpoint
from plugrad.errors import CheckpointError, CheckpointUnsafeError
from plugrad.rl_module.weights import KIND
from plugrad.types import COMPONENT_RL_MODULE, Array, ModuleID
from plugrad_rllib.migrate.files import regular_files

STATE = "module_state.pkl"
CHILD = Path(__file__).with_name("unpickle_child.py")
TIMEOUT_S = 60.0
_HIDDEN = re.compile(r"encoder\.(encoder|actor_encoder|critic_encoder)\.net\.mlp\.(\d+)\.(weight|bias)")
_HEAD = re.compile(r"(pi|vf)\.net\.mlp\.0\.(weight|bias)")
_PARTS = {"encoder": "encoder", "actor_encoder": "pi", "critic_encoder": "vf"}


def is_checkpoint(path: Path) -> bool:
    """Whether a folder is a checkpoint of RLlib's, of an algorithm, a learner or a module."""
    return path.is_dir() and any(_states(path))


def _states(path: Path) -> Iterator[Path]:
    found = regular_files(path, STATE, left=lambda where, why: None)
    return (each for each in found if each.name == STATE)


def convert(path: Path, out: Path, *, trusted: bool) -> list[ModuleID]:
    """Write the weights of a checkpoint of RLlib as a checkpoint of plugrad's.

    Args:
        path: of RLlib's checkpoint.
        out: a directory, which `learner.module.restore_from_path(out)` reads.
        trusted: whether the user trusts the file, which is pickled.

    Returns:
        The ids of the modules.

    Raises:
        CheckpointUnsafeError: it is not trusted, or names more than arrays.
        CheckpointError: it is not one module each, or has weights of a network that plugrad does not have.
    """
    if not trusted:
        raise CheckpointUnsafeError(
            f"{path} is pickled, and unpickling can run what a file names: if it is yours, add --trust-pickle"
        )
    found: dict[ModuleID, dict[str, Array]] = {}
    for state in sorted(_states(path)):
        module_id = state.parent.name
        arrays = names_here(_read(state), str(state))
        if module_id in found and not _equal(found[module_id], arrays):
            raise CheckpointError(
                f"{path} has module {module_id!r} more than once: give its folder learner_group/learner/rl_module"
            )
        found[module_id] = arrays
    save_checkpoint(
        out, {COMPONENT_RL_MODULE: found}, metadata={"kind": KIND, "module_ids": list(found)}, keep=1
    )
    return list(found)


def names_here(arrays: Mapping[str, Array], where: str) -> dict[str, Array]:
    """Weights under plugrad's names: those of RLlib's default networks renamed, those of other modules as they are.

    Args:
        arrays: by RLlib's names.
        where: the file, for errors.

    Returns:
        By plugrad's names. torch's layers have their outputs first, plugrad's networks their inputs.

    Raises:
        CheckpointError: a default network with convolutions, an LSTM, or another part without a counterpart.
    """
    constant = "log_std_clip_param_const"
    arrays = {name: value for name, value in arrays.items() if not name.endswith(constant)}
    if not any(name.startswith("encoder.") for name in arrays) or not any(map(_HEAD.fullmatch, arrays)):
        return dict(arrays)
    layers = sorted({int(m[2]) for m in map(_HIDDEN.fullmatch, arrays) if m is not None})
    found = {}
    for name, value in arrays.items():
        if hidden := _HIDDEN.fullmatch(name):
            here = f"{_PARTS[hidden[1]]}.{layers.index(int(hidden[2]))}.{hidden[3]}"
        elif head := _HEAD.fullmatch(name):
            here = f"{head[1]}.out.{head[2]}"
        else:
            raise CheckpointError(
                f"{where}: {name} is of a network that plugrad does not build; fully connected default modules are read"
            )
        found[here] = np.ascontiguousarray(value.T)
    return found


def _equal(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def _read(path: Path) -> dict[str, Array]:
    with tempfile.TemporaryDirectory(prefix="plugrad-") as folder:
        out = Path(folder) / "weights.safetensors"
        command = [sys.executable, "-I", str(CHILD), str(path), str(out)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise CheckpointUnsafeError(f"{path} was not read within {TIMEOUT_S:g} s") from None
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"its process ended with code {done.returncode}"]
            raise CheckpointUnsafeError(f"{path} was not read: {said[-1]}")
        return {name: np.array(value) for name, value in load_file(out).items()}
