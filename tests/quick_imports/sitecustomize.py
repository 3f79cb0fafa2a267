"""Python runs this first in each process of a test environment: TensorFlow is imported without what it only looks at.

A worker of Ray, and what a launcher starts, becomes a fork of a process that has imported them: forked_workers.py.

Where they are installed, TensorFlow Lite imports jax, and Keras pandas and matplotlib: a third of `import tensorflow`,
in each of hundreds of processes that tests start. For them these are not installed; for all others they are.
"""

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import FrameType, ModuleType

_LOOKED_AT = {"jax", "pandas", "matplotlib"}
_THAT_LOOK = ("tensorflow.lite.", "keras.src.")


class _NotForThem(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        if name not in _LOOKED_AT:
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and _module_of(frame).startswith("importlib"):
            frame = frame.f_back
        if frame is not None and _module_of(frame).startswith(_THAT_LOOK):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


sys.meta_path.insert(0, _NotForThem())

if "PLUGRAD_TEST_WORKERS" in os.environ:
    import forked_workers

    forked_workers.ask()
