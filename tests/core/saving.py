"""What the tests of saves that go wrong share: states that show a mixture, and processes that end at once."""

import os
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from plugrad.checkpoint import Block, load_checkpoint


def state_of(step: int, size: int = 20_000, block: Block | None = None) -> dict[str, Any]:
    """A state whose parts all say which step they are of, beside a block that never changes."""
    state = {"step": step, "arrays": {name: np.full(size, step, np.int64) for name in "abc"}}
    return state if block is None else {**state, "block": block}


def a_block() -> Block:
    return Block(lambda: {"x": np.arange(5), "y": np.ones((5, 2), np.float32)})


def step_of(path: Path) -> int:
    """The step of the newest save, after a check that all its parts are of that step."""
    state = load_checkpoint(path).state
    assert all((array == state["step"]).all() for array in state["arrays"].values())
    if "block" in state:
        np.testing.assert_equal(dict(state["block"]), dict(a_block()))
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
