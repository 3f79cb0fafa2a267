"""How much work Python does, counted in calls: a slow or busy machine changes nothing of it."""

import gc
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls_of(work: Callable[[], Any]) -> tuple[Any, Counter[str]]:
    """What a function returns, and how often it called each Python function, by "module.name"."""
    found: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            found[f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"] += 1

    gc.disable()  # hypothesis listens to collections
    sys.setprofile(count)
    try:
        return work(), found
    finally:
        sys.setprofile(None)
        gc.enable()
