"""New Python processes that import what this one can."""

import os
import subprocess
import sys


def start_interpreter(function: str, *descriptors: int) -> subprocess.Popen[bytes]:
    """Start a process that runs a function.

    It is a new interpreter, not a fork: a fork beside the threads of TensorFlow or of a user can lock up. It does not
    run the user's script again, as `multiprocessing` does, so that scripts need no `if __name__ == "__main__"`. It has
    a session of its own: Ctrl-C reaches this process only.

    Args:
        function: `"package.module:name"`.
        *descriptors: open files, which the process inherits; its function gets their numbers.

    Returns:
        The process.
    """
    module, _, name = function.partition(":")
    path = [os.path.abspath(folder) for folder in sys.path]
    code = f"import sys; sys.path = {path!r}; from {module} import {name}; {name}{tuple(descriptors)!r}"
    return subprocess.Popen(
        [sys.executable, *(f"-W{option}" for option in sys.warnoptions), "-c", code],
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
