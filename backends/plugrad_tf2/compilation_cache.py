"""Turns on TensorFlow's disk cache of programs that XLA compiled for the CPU, in the user's cache folder.

TensorFlow logs an error whenever it loads a program on a processor with AVX-512, because XLA compiles with preferences
("prefer-no-gather") that are no abilities of a processor. So programs are kept only where such messages are hidden.
"""

import logging
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import tensorflow as tf

from plugrad.hooks.backend_helpers import program_folder_or_none
from plugrad_tf2 import xla_flags
from plugrad_tf2.scheduling import num_threads

log = logging.getLogger("plugrad")
T = TypeVar("T")
MOST_PROGRAMS = 200
"""Older ones are removed. The program of a small update takes 0.5 MB."""

_VARIABLE, _FOLDER = "TF_XLA_FLAGS", "--tf_xla_persistent_cache_directory"
_ON_CPU = "--tf_xla_persistent_cache_device_types=CPU"
_HIDE_ERRORS = "3"
_OF_DAMAGE = (
    "Read less bytes than requested",
    "Serialized cache key does not match",
    "Serialized HLO does not match",
    "serialized CpuAotCompilationResult",
)
"""In TensorFlow's errors of a kept program. Others name its file. A model's own operations raise the same classes."""


@contextmanager
def in_folder() -> Iterator[None]:
    """Name the folder, unless a flag of the user does, TensorFlow shows errors, or the folder cannot be made.

    TensorFlow reads the flag once in a process: when it first does anything. The block does it; what came before it has
    decided that nothing is kept.
    """
    folder = _folder()
    if folder is None:
        yield
    else:
        with xla_flags.added(_VARIABLE, f"{_FOLDER}={folder}", _ON_CPU):
            yield


@cache
def _folder() -> Path | None:
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL") != _HIDE_ERRORS or not xla_flags.can_add(_VARIABLE, _FOLDER):
        return None
    folder = program_folder_or_none("tf2", _options())
    if folder is None:
        return None
    try:
        for old in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)[:-MOST_PROGRAMS]:
            old.unlink(missing_ok=True)
    except OSError as error:  # read-only
        log.info("tf2: compiled updates are not kept on disk: %s", error)
        return None
    # TensorFlow splits its flags at spaces.
    return folder if " " not in str(folder) else None


def _options() -> str:
    """A name for what changes a program and is not in TensorFlow's key."""
    said = [os.environ.get(name) for name in ("XLA_FLAGS", "TF_ENABLE_ONEDNN_OPTS")]
    return f"{tf.__version__}-{zlib.crc32(repr(said).encode()):x}"


def compiled(function: Callable[..., Any]) -> Any:
    """A function that XLA compiles. Its name is part of the key, and tells in which order operations run.

    Args:
        function: of tensors.

    Returns:
        The `tf.function`.
    """

    def named(*args: Any) -> Any:
        return function(*args)

    name = getattr(function, "__name__", "part")
    named.__name__ = f"{name}_in_order" if num_threads() == 1 else name
    return tf.function(named, autograph=False, jit_compile=True)


def with_cache(run: Callable[[], T], renew: Callable[[], None]) -> T:
    """Run what compiles at its first call. If a kept program cannot be read or written, remove all and run it again.

    Args:
        run: what compiles.
        renew: makes the functions anew that `run` calls. TensorFlow remembers for each that it failed.

    Returns:
        What `run` gives.
    """
    try:
        return run()
    except tf.errors.OpError as error:
        if not forget(error):
            raise
    renew()
    return run()


def forget(error: Exception) -> bool:
    """Remove all kept programs if an error is of one that cannot be read or written.

    Args:
        error: of TensorFlow.

    Returns:
        Whether it is.
    """
    folder, said = _folder(), str(error)
    if folder is None or not any(each in said for each in (str(folder), *_OF_DAMAGE)):
        return False
    log.warning("tf2: removed the compiled programs in %s, of which one could not be used: %s", folder, error)
    for each in folder.iterdir():
        each.unlink(missing_ok=True)
    return True
