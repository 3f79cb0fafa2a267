"""Opens hostile checkpoints and run directories in a process of its own, and watches what opening does.

`python watched_openings.py FOLDER SEED NUMBER` spoils copies of `FOLDER/<good>` and opens them at the doors of
`malicious_runs`. It prints one JSON object per case: its name, how many Python functions were called, the bytes of
memory that it took, what was raised, and what code ran, if any.
"""

import json
import os
import shutil
import signal
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from counted_calls import calls_of
from malicious_runs import Case, cases, newest

from plugrad import Learner, LearnerGroup
from plugrad.algorithm import Algorithm
from plugrad.cli import main
from plugrad.errors import PlugradError

FORBIDDEN = {
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty"),
    *("pickle.find_class", "marshal.loads.untrusted", "socket.connect", "ctypes.dlopen.untrusted"),
}
GIVEN_UP_AFTER_S = 300
"""Only what hangs takes so long."""
COMMANDS = {
    "eval": ["eval", "--episodes=1"],
    "inspect": ["inspect"],
    "plot": ["plot"],
    "resume": ["train", "--quiet", "--stop-timesteps=1", "--resume"],
}
APIS: dict[str, Any] = {"Learner": Learner, "LearnerGroup": LearnerGroup, "Algorithm": Algorithm}
RAN: list[str] = []


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: what a stranger's file must not lead to."""
    if event in FORBIDDEN or (event == "import" and arguments[0] == "canary"):
        RAN.append(f"{event} {str(arguments)[:100]}")


def open_at(door: str, path: Path) -> str:
    """Open it; what was said. An error that is no plugrad error has its traceback in it."""
    if door in APIS:
        try:
            APIS[door].from_checkpoint(path)
        except PlugradError as error:
            return f"{type(error).__name__}: {error}"
        except Exception:
            return traceback.format_exc()
        return "opened"
    command = COMMANDS.get(door)
    words = (
        [*command, path]
        if command
        else ["train", "--quiet", "--stop-timesteps=1", "--config", path / "config.toml", "--out", "o"]
    )
    done = CliRunner().invoke(main, [str(word) for word in words], prog_name="plugrad")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return "".join(traceback.format_exception(done.exception))
    return f"opened: {done.stdout}" if done.exit_code == 0 else done.stderr


def peak() -> int:
    """The most memory that this process had since `forget_peak`, in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def forget_peak() -> int:
    """Begin to measure anew; the memory that the process has now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def give_up(number: int, frame: Any) -> None:
    raise TimeoutError(f"no answer after {GIVEN_UP_AFTER_S} s")


def run(case: Case, folder: Path) -> dict[str, Any]:
    """One case, measured."""
    path = Path(shutil.copytree(folder / case.good, folder / "work" / "victim"))
    case.spoil(path)
    RAN.clear()
    before = forget_peak()
    signal.alarm(GIVEN_UP_AFTER_S)
    said, calls = calls_of(lambda: open_at(case.door, path))
    signal.alarm(0)
    memory = peak() - before
    shutil.rmtree(folder / "work" / "victim")
    ran = [*RAN, *(["marker"] if Path("sang").exists() else [])]
    return {
        "name": case.name,
        "door": case.door,
        "said": said,
        "calls": calls,
        "bytes": memory,
        "ran": ran,
    }


def main_(folder: Path, seed: int, number: int) -> None:
    os.chdir(folder / "work")
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, give_up)
    for good in ("learner", "ppo", "dqn"):  # whatever is imported once is imported now
        for door in (*APIS, "eval", "inspect"):
            open_at(door, newest(folder / good))
    for door in (*COMMANDS, "config"):
        open_at(door, Path(shutil.copytree(folder / "run", "warm" + door)))
    sys.addaudithook(watch)
    for case in cases(seed, number):
        print(json.dumps(run(case, folder)), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    main_(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
