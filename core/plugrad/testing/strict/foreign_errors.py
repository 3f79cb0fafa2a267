"""Errors that Python or a framework raises about strict things, turned into refusals."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from plugrad.errors import LossError, PlugradError
from plugrad.testing.strict.refusal import is_authors, is_installed, refuse
from plugrad.testing.strict.tensor import StrictTensor

_READ_ONLY = ("'Rows' object", "'ConfigView' object")


@contextmanager
def foreign_errors_refused() -> Iterator[None]:
    """Refuse what raises inside because a function is not of this backend, or a batch is read-only.

    Raises:
        PortabilityError: with the author's line.
    """
    try:
        yield
    except LossError as error:
        if "where" not in error.facts:
            raise
        file, _, line = error.facts["where"].rpartition(":")
        refuse(
            f"tensors broadcast to pairs of rows ({error})", "Give all the shape [B]", at=(file, int(line))
        )
    except PlugradError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        authors = [n for n, each in enumerate(frames) if is_authors(each.filename)]
        if not authors:
            raise
        at = frames[authors[-1]].filename, frames[authors[-1]].lineno or 0
        if any(text in str(error) for text in _READ_ONLY):
            refuse(f"a batch is changed: {error}", "Make a new dict: {**batch, column: tensor}", at=at)
        if isinstance(error, ValueError) and "read-only" in str(error):
            refuse("an array that others read too is changed in place", "Make a new array: a = a * b", at)
        below = frames[authors[-1] + 1 :]
        if StrictTensor.__name__ in str(error) or any(is_installed(each.filename) for each in below):
            refuse(
                f"a function that is not of learner.ops is given a tensor: {error}",
                "Compute with learner.ops",
                at,
            )
        raise
