"""Makes XLA's programs on a CPU run their operations one after the other where there is one thread.

XLA schedules for many threads, and hands operations that could run in parallel to its pool even if that has one thread.
In the loop of a small update this takes a fifth of the time. With several threads XLA's own order is better.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import tensorflow as tf

IN_ORDER = "--xla_cpu_enable_concurrency_optimized_scheduler=false"

KNOWN_TO = ("2.21.",)
"""Versions of TensorFlow with this flag; others end the process when they meet an unknown flag."""


def run_in_order_on_one_thread() -> None:
    """Ask XLA for this order, for the whole process, unless XLA has compiled before or `XLA_FLAGS` says otherwise.

    XLA reads that variable once, when it first compiles. It is changed for that moment only, so that neither the
    user's code nor the processes that it starts see the change.
    """
    said = os.environ.get("XLA_FLAGS", "").strip()
    names_a_file = said != "" and not said.startswith("-")
    if num_threads() != 1 or not tf.__version__.startswith(KNOWN_TO) or names_a_file:
        return
    if IN_ORDER.split("=")[0] not in said:
        _compile_first_with(f"{said} {IN_ORDER}".strip())


@cache
def _compile_first_with(flags: str) -> None:
    with _environment_variable("XLA_FLAGS", flags), tf.device("cpu"):
        tf.function(lambda: tf.zeros([]) + 1.0, jit_compile=True)()


@contextmanager
def _environment_variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def num_threads() -> int:
    """Threads of one operation, as set in TensorFlow or in its environment variable; 0: as many as there are cores."""
    configured: int = tf.config.threading.get_intra_op_parallelism_threads()
    return configured or int(os.environ.get("TF_NUM_INTRAOP_THREADS") or 0)
