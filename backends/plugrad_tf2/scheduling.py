"""Makes XLA's programs on a CPU run their operations one after the other where there is one thread.

XLA schedules for many threads, and hands operations that could run in parallel to its pool even if that has one thread.
In the loop of a small update this takes a fifth of the time. With several threads XLA's own order is better.
"""

import os
from functools import cache

import tensorflow as tf

from plugrad_tf2 import xla_flags

IN_ORDER = "--xla_cpu_enable_concurrency_optimized_scheduler=false"


def run_in_order_on_one_thread() -> None:
    """Ask XLA for this order, for the whole process, unless XLA has compiled before or `XLA_FLAGS` says otherwise."""
    if num_threads() == 1 and xla_flags.can_add("XLA_FLAGS", IN_ORDER.split("=")[0]):
        _compile_first_with(IN_ORDER)


@cache
def _compile_first_with(flag: str) -> None:
    with xla_flags.added("XLA_FLAGS", flag), tf.device("cpu"):
        tf.function(lambda: tf.zeros([]) + 1.0, jit_compile=True)()


def num_threads() -> int:
    """Threads of one operation, as set in TensorFlow or in its environment variable; 0: as many as there are cores."""
    configured: int = tf.config.threading.get_intra_op_parallelism_threads()
    return configured or int(os.environ.get("TF_NUM_INTRAOP_THREADS") or 0)
