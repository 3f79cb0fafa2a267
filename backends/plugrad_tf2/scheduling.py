"""In which order XLA's programs run their operations on a CPU: one after the other where there is one thread.

XLA schedules for many threads, and hands what could run side by side to its pool even if that has one thread: in the
loop of a small update a hand-over in each step, a fifth of its time. On several threads its own choice is better.
"""

import os

import tensorflow as tf

IN_ORDER = "--xla_cpu_enable_concurrency_optimized_scheduler=false"

KNOWN_TO = ("2.21.",)
"""TensorFlow ends the process if it meets a flag that it does not know."""


def run_in_order_on_one_thread() -> None:
    """Ask XLA for it, for the whole process, before it first compiles; what you say in `XLA_FLAGS` stands."""
    flags = os.environ.get("XLA_FLAGS", "")
    if num_threads() == 1 and tf.__version__.startswith(KNOWN_TO) and IN_ORDER.split("=")[0] not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {IN_ORDER}".strip()


def num_threads() -> int:
    """Of one operation, as set in TensorFlow or in its environment variable; 0: as many as there are cores."""
    configured: int = tf.config.threading.get_intra_op_parallelism_threads()
    return configured or int(os.environ.get("TF_NUM_INTRAOP_THREADS", 0))
