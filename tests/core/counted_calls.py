"""How much work Python does, counted in calls: a slow or busy machine changes nothing of it."""

import gc
from collections.abc import Callable
from cProfile import Profile
from types import CodeType
from typing import Any


def calls_of(work: Callable[[], Any]) -> tuple[Any, int]:
    """What a function returns, and how many Python functions were called, counted in C: a count costs little time."""
    profile = Profile(builtins=False)
    gc.disable()  # hypothesis listens to collections
    profile.enable()
    try:
        found = work()
    finally:
        profile.disable()
        gc.enable()
    return found, sum(each.callcount for each in profile.getstats() if isinstance(each.code, CodeType))
