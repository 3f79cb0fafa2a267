"""Connector pieces that may not change what they are given in place, nor give columns that are no numpy arrays."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from plugrad.hooks.author_line import Line
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.testing.strict.foreign_errors import foreign_errors_refused
from plugrad.testing.strict.refusal import boundary, is_authors, refuse
from plugrad.types import Array

Columns = dict[str, dict[str, Any]]


class StrictPiece:
    """A connector piece that is watched.

    Args:
        piece: an author's.
    """

    def __init__(self, piece: Callable[..., Columns]) -> None:
        object.__setattr__(self, "piece", piece)

    @boundary
    def __call__(self, *, learner: LearnerProtocol, batch: Columns, episodes: Any) -> Columns:
        """Call the piece.

        Raises:
            PortabilityError: it changes an array in place, or gives what is no array.
        """
        with _read_only((batch, list(map(vars, episodes)))), foreign_errors_refused():
            answer: Columns = self.piece(learner=learner, batch=batch, episodes=episodes)
        _check_columns(answer, _line_of(self.piece))
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "piece"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.piece, name, value)


def watch_connectors(learner: LearnerProtocol) -> None:
    """From now on, watch the authors' connector pieces of a learner."""
    pieces: Any = learner
    pieces.connectors = [
        each if isinstance(each, StrictPiece) or not is_authors(_line_of(each)[0]) else StrictPiece(each)
        for each in learner.connectors
    ]


def piece_of(connector: Any) -> Any:
    """The author's piece behind one that is watched."""
    return connector.piece if isinstance(connector, StrictPiece) else connector


def _line_of(piece: Any) -> Line:
    function = getattr(piece, "__func__", piece)
    code = getattr(function, "__code__", None) or getattr(type(piece).__call__, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else ("<unknown>", 0)


@contextmanager
def _read_only(tree: Any) -> Iterator[None]:
    arrays = [each for each in _arrays(tree) if each.flags.writeable]
    for each in arrays:
        each.flags.writeable = False
    try:
        yield
    finally:
        for each in arrays:
            each.flags.writeable = True


def _arrays(tree: Any) -> Iterator[Array]:
    if isinstance(tree, np.ndarray):
        yield tree
    elif isinstance(tree, Mapping):
        for each in tree.values():
            yield from _arrays(each)
    elif isinstance(tree, list | tuple):
        for each in tree:
            yield from _arrays(each)


def _check_columns(answer: Any, line: Line) -> None:
    for columns in answer.values() if isinstance(answer, Mapping) else ():
        for name, values in columns.items() if isinstance(columns, Mapping) else ():
            if not isinstance(values, np.ndarray | list | Mapping):
                refuse(
                    f"a connector gives column {name!r} as {type(values).__module__}.{type(values).__name__}",
                    "Give a numpy array: the learner makes the backend's tensors of it",
                    line,
                )
