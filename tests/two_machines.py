"""Two machines made of one: two network namespaces, each with a Ray node, and a wire between them (`wire.py`)."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from needs import NO_MACHINES
from wire import MTU

ADDRESSES = "10.98.0.1", "10.98.0.2"
GCS_PORT = 6379
FIXED_PORTS = {
    "node-manager-port": 8077,
    "object-manager-port": 8076,
    "runtime-env-agent-port": 8078,
    "dashboard-agent-grpc-port": 8079,
    "dashboard-agent-listen-port": 8080,
    "metrics-export-port": 8081,
    "min-worker-port": 10002,
    "max-worker-port": 10200,
}
QUICK_TO_NOTICE = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "20",
    "RAY_worker_niceness": "0",
    "RAY_AUTH_MODE": "disabled",
}


def why_not() -> str | None:
    """Why two machines cannot be made here; None if they can. Each reason begins with NO_MACHINES."""
    reason = _why_not()
    return reason and NO_MACHINES + reason


def _why_not() -> str | None:
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need Linux and root"
    if shutil.which("ip") is None or not os.path.exists("/dev/net/tun"):
        return "network namespaces need the command `ip` and /dev/net/tun"
    made = subprocess.run(["ip", "netns", "add", "plugrad-try"], check=False, capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", "plugrad-try"], check=False, capture_output=True)
    return f"`ip netns add`: {made.stderr.strip()}" if made.returncode else None


class TwoMachines:
    """Two namespaces, a wire, and Ray on both; a context manager.

    Args:
        folder: for the files of Ray and of the wire.
        dead_after: how many health checks of Ray, one a second, a machine must miss to be dead. Where none dies, many:
            a cut of two seconds on a busy computer misses three.
    """

    def __init__(self, folder: Path, dead_after: int = 3) -> None:
        self.names = f"plugrad-{os.getpid()}-0", f"plugrad-{os.getpid()}-1"
        self._folder = folder
        self._dead_after = dead_after
        self._socket = str(folder / "wire")
        self._wire: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _begin(self) -> None:
        for name in self.names:
            _ip("netns", "add", name)
        script = str(Path(__file__).with_name("wire.py"))
        self._wire = subprocess.Popen(
            [sys.executable, script, *self.names, self._socket], stdout=subprocess.PIPE, text=True
        )
        assert self._wire.stdout is not None
        assert self._wire.stdout.readline() == "ready\n"
        for name, address in zip(self.names, ADDRESSES, strict=True):
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "wire0")
            _ip("-n", name, "link", "set", "wire0", "mtu", str(MTU), "up")
        self.start_ray(0)
        self.start_ray(1)

    def _end(self) -> None:
        for n in (1, 0):
            self.kill(n)
        if self._wire is not None:
            self._wire.kill()
            self._wire.wait()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def start_ray(self, n: int) -> None:
        """Start the Ray node of one machine: the head on the first one, with room for one learner each."""
        head = ["--head", f"--port={GCS_PORT}", f"--temp-dir={self._folder}", "--include-dashboard=false"]
        where = head if n == 0 else [f"--address={ADDRESSES[0]}:{GCS_PORT}"]
        ports = [f"--{name}={port}" for name, port in FIXED_PORTS.items()]
        own = [f"--node-ip-address={ADDRESSES[n]}", "--num-cpus=1", "--object-store-memory=100000000"]
        done = subprocess.run(
            self.command(n, [sys.executable, "-m", "ray.scripts.scripts", "start", *where, *own, *ports]),
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    def command(self, n: int, argv: Sequence[str]) -> list[str]:
        """The command that runs another one on a machine."""
        return ["ip", "netns", "exec", self.names[n], *argv]

    def set_wire(self, **settings: Any) -> None:
        """Change the wire; see `wire.py`."""
        set_wire(self._socket, **settings)

    @property
    def environment(self) -> dict[str, str]:
        """Of processes that run on a machine and use `set_wire` and `kill_machine` themselves."""
        path = os.pathsep.join(each for each in sys.path if each)
        names = " ".join(self.names)
        own = {"PYTHONPATH": path, "WIRE": self._socket, "MACHINES": names, "NO_PROXY": "*", "no_proxy": "*"}
        threshold = {"RAY_health_check_failure_threshold": str(self._dead_after)}
        return {**os.environ, **QUICK_TO_NOTICE, **threshold, **own}

    def kill(self, n: int) -> None:
        """Kill all processes of a machine, as if it lost its power."""
        kill_machine(self.names[n])


def set_wire(path: str, **settings: Any) -> None:
    """Change the wire with this socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as commands:
        commands.sendto(json.dumps(settings).encode(), path)


def kill_machine(name: str) -> None:
    """Kill all processes in a namespace."""
    pids = subprocess.run(["ip", "netns", "pids", name], check=False, capture_output=True, text=True).stdout
    for pid in pids.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"
