"""Programs in processes that have imported what all of them need: a fork takes a hundredth of a new Python's time."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

SERVER = """
import json, os, sys, tempfile, traceback
exec(compile(sys.argv[1], "<prelude>", "exec"), globals())
for _line in sys.stdin:
    _asked = json.loads(_line)
    with tempfile.TemporaryFile("w+") as _out, tempfile.TemporaryFile("w+") as _err:
        _pid = os.fork()
        if not _pid:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0), os.dup2(_out.fileno(), 1), os.dup2(_err.fileno(), 2)
            _code = 1
            try:
                sys.path[:0], sys.argv[1:] = _asked["path"], []
                os.environ.update(_asked["environment"])
                exec(compile(_asked["code"], "<string>", "exec"), globals())
                _code = 0
            except SystemExit as error:
                _code = error.code if isinstance(error.code, int) else int(error.code is not None)
                if isinstance(error.code, str):
                    print(error.code, file=sys.stderr)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush(), sys.stderr.flush()
                os._exit(_code)
        _status = os.waitstatus_to_exitcode(os.waitpid(_pid, 0)[1])
        _out.seek(0), _err.seek(0)
        print(json.dumps([_status, _out.read(), _err.read()]), flush=True)
"""


class Forked:
    """A Python that has run a prelude, and runs each further program in a fork of itself.

    Args:
        process: runs `SERVER`.
    """

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(
        self, code: str, *path: object, environment: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program.

        Args:
            code: sees the names of the prelude.
            *path: folders in front of `sys.path`.
            environment: variables in addition.

        Returns:
            Exit code and what was printed.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked: dict[str, Any] = {
            "code": code,
            "path": [str(each) for each in path],
            "environment": dict(environment or {}),
        }
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, "the prelude failed, or the process has died: see its error above"
        status, out, err = json.loads(answer)
        return subprocess.CompletedProcess(["python", "-c", code], status, out, err)


@contextmanager
def forked(prelude: str, *path: object, without: str = "") -> Iterator[Forked]:
    """A Python that has run a prelude.

    Args:
        prelude: what all programs need.
        *path: folders in front of `PYTHONPATH`.
        without: a variable that its environment lacks.

    Yields:
        It; it ends afterwards.
    """
    environment = {name: value for name, value in os.environ.items() if name != without}
    paths = [*map(str, path), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(each for each in paths if each)
    command = [sys.executable, "-c", SERVER, prelude]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield Forked(process)
        finally:
            process.communicate()
