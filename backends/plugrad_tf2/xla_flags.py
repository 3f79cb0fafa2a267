"""Flags of XLA and of TensorFlow's use of it, set for a moment: both read an environment variable once.

So neither the user's code nor the processes that it starts see a change.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from plugrad_tf2.versions import lost_flags


def can_add(variable: str, name: str) -> bool:
    """Whether a flag can be added to an environment variable.

    Args:
        variable: "XLA_FLAGS" or "TF_XLA_FLAGS".
        name: of the flag, such as "--xla_dump_to".

    Returns:
        False if the user has set the flag, if the variable names a file of flags, or if TensorFlow may not know it.
    """
    said = os.environ.get(variable, "").strip()
    names_a_file = said != "" and not said.startswith("-")
    return name not in said and not names_a_file and not lost_flags(tf.__version__)


@contextmanager
def added(variable: str, *flags: str) -> Iterator[None]:
    """While it lasts, an environment variable has more flags.

    Args:
        variable: see `can_add`.
        flags: with their values, such as "--xla_dump_to=/tmp".
    """
    before = os.environ.get(variable)
    os.environ[variable] = " ".join([before or "", *flags]).strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before
