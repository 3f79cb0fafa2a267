"""What the tests of saves that go wrong share: states that show a mixture, and processes that end at once."""

import os
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from plugrad.checkpoint import load_checkpoint


def state_of(step: int, size: int = 20_000) -> dict[str, Any]:
    """A state whose parts all say which step they are of."""
    return {"step": step, "arrays": {name: np.full(size, step, np.int64) for name in "abc"}}


def step_of(path: Path) -> int:
    """The step of the newest save, after a check that all its parts are of that step."""
    state = load_checkpoint(path).state
    assert all((array == state["step"]).all() for array in state["arrays"].values())
    return int(state["step"])


def fork(child: Callable[[], object]) -> int:
    """Run `child` in a process of its own, which ends without pytest's cleanup; 0 is success."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # 3.12: other threads, of which the child uses none
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        child()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
