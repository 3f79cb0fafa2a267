"""Replies of remote learners: a value or an error, with the learner's progress and the digest of its state.

Errors of the user's code are sent as values, so that they keep their type and the actor keeps running. Notes say where
they were raised.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeAlias

from plugrad.errors import CollectiveError, LearnerTimeoutError, PlugradError
from plugrad.hooks.manager import hook_methods
from plugrad.learner import Learner
from plugrad.workers.answers import Raised


@dataclass(frozen=True)
class Reply:
    """The answer of one learner.

    Args:
        rank: the learner's rank.
        committed: number of the last change that it has applied.
        digest: digest of its state.
        value: the answer, if there is no failure.
        failure: the failure, or None.
    """

    rank: int
    committed: int
    digest: str
    value: Any = None
    failure: "Failure | None" = None


Replies: TypeAlias = dict[int, Reply]
"""`{rank: reply}`."""


def raise_failures(replies: Mapping[int, Reply]) -> None:
    """Raise the error of the first learner that failed by itself, or else an error that follows from another's.

    Args:
        replies: by rank.

    Raises:
        Exception: the error; nothing is raised if no learner failed.
    """
    failures = [reply.failure for reply in replies.values() if reply.failure is not None]
    if failures:
        raise min(failures, key=lambda failure: failure.level).error()


def exchange_failure(replies: Mapping[int, Reply]) -> str | None:
    """Describe the failure if only the exchange between learners failed, and no learner by itself.

    Args:
        replies: by rank.

    Returns:
        The first learner's message; None if nothing failed, or a learner failed by itself.
    """
    failures = [reply.failure for reply in replies.values() if reply.failure is not None]
    is_only_that = failures and all(failure.level > 0 for failure in failures)
    return failures[0].summary if is_only_that else None


@dataclass(frozen=True)
class Failure(Raised):
    """An exception of a learner on its way to the driver.

    Args:
        where: rank, change, hook, module and line, where known.
        level: 0 for the learner's own error, 1 if another learner was too late, 2 if another learner left.
    """

    where: dict[str, Any]
    level: int

    def error(self, where: str = "") -> Exception:
        """The exception, with a note that says where it was raised, and attributes `rank`, `hook`, `module_id`."""
        words = ", ".join(f"{name} {value!r}" for name, value in self.where.items() if value is not None)
        error = super().error(f"on a remote learner: {words}\n")
        for name in ("rank", "hook", "module_id", "change"):
            if not hasattr(error, name):
                _try_to_set(error, name, self.where.get(name))
        if isinstance(error, PlugradError):
            error.facts = {**self.where, **error.facts}
        return error


def _try_to_set(error: Any, name: str, value: Any) -> None:
    try:
        setattr(error, name, value)
    except AttributeError:  # a class with slots: the note has the same information
        return


def make_failure(error: Exception, rank: int, change: int | None) -> Failure:
    """Make the `Failure` of an exception that was just caught.

    Args:
        error: the exception.
        rank: rank of the learner that raised it.
        change: number of the change that it was applying, or None.

    Returns:
        The failure to send.
    """
    level = 2 if isinstance(error, CollectiveError) else int(isinstance(error, LearnerTimeoutError))
    where = {"rank": rank, "change": change, **_locate(error.__traceback__)}
    return Failure.of(error, where=where, level=level)


def _locate(trace: TracebackType | None) -> dict[str, Any]:
    """Hook, module and line, from the innermost frames that have them."""
    hooks = hook_methods(Learner)
    found: dict[str, Any] = {"hook": None, "module_id": None, "line": None}
    while trace is not None:
        frame = trace.tb_frame
        name = frame.f_code.co_name
        if name in hooks:
            found["hook"] = hooks[name]
        if isinstance(frame.f_locals.get("module_id"), str):
            found["module_id"] = frame.f_locals["module_id"]
        found["line"] = f"{frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
