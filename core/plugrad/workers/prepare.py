"""Prepare a process before it imports a framework: where it finds classes, and how many threads it uses."""

import os
import sys

from plugrad.importing.names import main_is_elsewhere

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)


def prepare_process(search_path: list[str], num_threads: int) -> None:
    """Prepare an actor's process, before it imports a framework.

    Args:
        search_path: the driver's `sys.path`, from which the user's classes are imported.
        num_threads: how many threads one operation of a framework may use.
    """
    main_is_elsewhere()
    sys.path += [folder for folder in search_path if folder not in sys.path]
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(num_threads)))
