"""Runs pytest again and again, each time in a fork of one process that has imported torch and the suite already.

`python prover.py`; a request is a line of JSON on standard input, `{"folder", "options"}`, an answer is the exit status
and what pytest printed. The fork finds the packages in the folder before all others.
"""

import gc
import io
import json
import os
import sys
import tempfile

import hypothesis  # noqa: F401  (what every run needs is imported once)
import pytest
import torch  # noqa: F401

import plugrad.testing.backend_suite  # noqa: F401
import plugrad_ppo  # noqa: F401


def main() -> None:
    gc.collect()
    gc.freeze()  # else each fork visits what was imported, and copies it by that
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryFile() as said:
            pid = os.fork()
            if not pid:
                prove(request["folder"], request["options"], said.fileno())
            _, status = os.waitpid(pid, 0)
            said.seek(0)
            answer = {"status": os.waitstatus_to_exitcode(status), "said": said.read().decode()}
        print(json.dumps(answer), flush=True)


def prove(folder: str, options: list[str], said: int) -> None:
    """In the fork: run the tests of a folder, and end."""
    assert "plugrad_torch" not in sys.modules, "a fork must import the copy"
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), line_buffering=True)
    sys.path.insert(0, folder)
    os.chdir(os.path.join(folder, "tests"))
    status = 70
    try:
        status = int(pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir=.", *options]))
    finally:
        sys.stdout.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
