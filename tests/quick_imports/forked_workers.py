"""Processes with learners are forks of one that has imported the frameworks: imports are most of what such a one takes.

Where `PLUGRAD_TEST_WORKERS` names a socket, a process that Ray starts as a worker, or that a launcher starts with
tests/launched.py, asks the one behind it for a fork. This gets its arguments, environment, folder and files, and runs
the program; both end together. One that has other settings of the frameworks in its environment starts as ever, and so
do all where nobody answers.

    python forked_workers.py SOCKET MODULE...   # imports the modules, and forks until its standard input ends
"""

import json
import os
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

VARIABLE = "PLUGRAD_TEST_WORKERS"
_OF_RAY = "default_worker.py"
_PROGRAMS = (_OF_RAY, "launched.py")
_OF_TORCHRUN = ("TORCHELASTIC_", "TORCH_NCCL_")
_READ_AT_IMPORT = ("CUDA_", "JAX_", "KERAS_", "MKL_", "NPROC", "OMP_", "PYTHON", "TF_", "TORCH", "XLA_")


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What frameworks and Python read of an environment when they are imported."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_AT_IMPORT) and not name.startswith(_OF_TORCHRUN)
    }


def ask() -> None:
    """In such a process: be nothing but the place of a fork, and end with it."""
    arguments = sys.orig_argv[1:]
    if arguments[:1] == ["-u"]:  # as torchrun starts it
        del arguments[0]
    if not arguments or os.path.basename(arguments[0]) not in _PROGRAMS:
        return
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(os.environ[VARIABLE])
        except OSError:  # its tests have ended
            return
        own = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
        socket.send_fds(server, [json.dumps(own).encode() + b"\n"], [0, 1, 2])
        if server.recv(1) == b"y":
            code = server.recv(1)
            os._exit(code[0] if code else 0)


def serve(path: str) -> None:
    """Fork for each worker that asks.

    Args:
        path: of the socket.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a fork
    own = settings(os.environ)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(64)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        while True:
            asking, _ = server.accept()
            request, files, _, _ = socket.recv_fds(asking, 1 << 20, 3)
            while not request.endswith(b"\n"):
                request += asking.recv(1 << 20)
            worker = json.loads(request)
            if settings(worker["environment"]) == own and os.fork() == 0:
                server.close()
                _be(worker, files, asking)
            asking.close()
            for file in files:
                os.close(file)


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


def _be(worker: Mapping[str, Any], files: list[int], asking: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if os.path.basename(worker["arguments"][0]) != _OF_RAY and (program := os.fork()):
        for file in files:
            os.close(file)
        code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
        with suppress(OSError):  # nobody waits any more
            asking.send(bytes([code % 256]))
        os._exit(0)
    os.setpgid(0, 0)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(worker["folder"])
    os.environ.clear()
    os.environ.update(worker["environment"])
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    sys.argv[:] = worker["arguments"]
    sys.path[0] = os.path.dirname(sys.argv[0])
    asking.send(b"y")
    threading.Thread(target=_end_with, args=[asking], daemon=True).start()
    code: Any = 1
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as error:
        code = error.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


def _end_with(place: socket.socket) -> None:
    with suppress(OSError):
        place.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        import_module(name)
    serve(sys.argv[1])
