"""Run a script in its own process, pinned to one core with one thread, and parse its last line as JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
}
IN_ORDER = {"XLA_FLAGS": "--xla_cpu_enable_concurrency_optimized_scheduler=false"}
"""What plugrad asks XLA for by itself on one thread; here, so that hand-written TensorFlow gets it as well."""
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}


def environment(**more: str) -> dict[str, str]:
    """Environment variables of a measured process: one thread in every library, XLA in order, no messages, no GPU.

    They are the same for all contestants. oneDNN is as TensorFlow or the caller's environment sets it. Python keeps
    compiled modules, as it does where nobody forbids it: without them, imports take two to three times as long.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, **ONE_THREAD, **IN_ORDER, **QUIET, **more}


def run_alone(script: str, *arguments: object, core: int | None, python: str = sys.executable) -> Any:
    """Run a script and parse the last line that it printed.

    Args:
        script: a file of this folder.
        arguments: of the script.
        core: where it runs; None: where the system lets it.
        python: the interpreter.

    Returns:
        What the line says.

    Raises:
        RuntimeError: the script failed. The message has the end of its output.
    """
    command = [python, "-u", str(HERE / script), *map(str, arguments)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=lambda: None if core is None else os.sched_setaffinity(0, {core}),
    ) as process:
        out, err = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{script} {' '.join(map(str, arguments))} failed:\n{err[-3000:]}")
    return json.loads(out.splitlines()[-1])
