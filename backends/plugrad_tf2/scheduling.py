"""In which order XLA's programs run their operations on a CPU: one after the other where there is one thread.

XLA schedules for many threads, and hands what could run side by side to its pool even if that has one thread: in the
loop of a small update a hand-over in each step, a fifth of its time. On several threads its own choice is better.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import tensorflow as tf

IN_ORDER = "--xla_cpu_enable_concurrency_optimized_scheduler=false"

KNOWN_TO = ("2.21.",)
"""TensorFlow ends the process if it meets a flag that it does not know."""


def run_in_order_on_one_thread() -> None:
    """Ask XLA for it, for the whole process, unless XLA has compiled before or `XLA_FLAGS` says otherwise.

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
    """Of one operation, as set in TensorFlow or in its environment variable; 0: as many as there are cores."""
    configured: int = tf.config.threading.get_intra_op_parallelism_threads()
    return configured or int(os.environ.get("TF_NUM_INTRAOP_THREADS") or 0)
