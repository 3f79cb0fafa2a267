"""`EnvClock`: since when an env runner waits for its environments; and where they are, if they hang."""

import os
import re
import sys
import threading
import traceback
from collections.abc import Iterable
from time import monotonic
from types import TracebackType

_LIBRARIES = tuple(f"{os.path.dirname(file)}{os.sep}" for file in (os.__file__, os.path.dirname(__file__)))
"""The folders of Python and of plugrad."""
_DUMPED = re.compile(r'File "(.*)", line (\d+) in (.*)')


class EnvClock:
    """A context in which environments are called; another thread reads how long it lasts."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._thread = 0

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        self._since = monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._since = None

    @property
    def seconds(self) -> float:
        """How long the present call takes so far; 0.0: there is none."""
        since = self._since
        return 0.0 if since is None else monotonic() - since

    @property
    def place(self) -> str:
        """Where the present call is, such as "arm.py, line 33, in step"; empty: that is not known."""
        frame = sys._current_frames().get(self._thread)
        stack = traceback.extract_stack(frame)[::-1] if frame else []
        return _place((each.filename, each.lineno or 0, each.name) for each in stack)


def dumped_place(dump: str) -> str:
    """Where the environments of a process are.

    Args:
        dump: what `faulthandler` wrote of its threads.

    Returns:
        As `EnvClock.place`.
    """
    stacks = [_DUMPED.findall(each) for each in dump.split("\n\n")]
    of_envs = next((stack for stack in stacks if any(name == "step" for *_, name in stack)), [])
    return _place((file, int(line), name) for file, line, name in of_envs or max(stacks, key=len, default=[]))


def _place(stack: Iterable[tuple[str, int, str]]) -> str:
    """The first line of a stack, innermost first, that is of neither a library nor plugrad, else the first of all."""
    found = list(stack)
    own = next((each for each in found if not each[0].startswith((*_LIBRARIES, "<"))), None)
    file, line, name = own or (found[0] if found else ("", 0, ""))
    return f"{file}, line {line}, in {name}" if file else ""
