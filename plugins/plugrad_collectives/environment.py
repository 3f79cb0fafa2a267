"""`Environment`: processes started by torchrun, Open MPI or SLURM, which find each other through torch's store.

| who started them | rank and size | where rank 0 is |
| --- | --- | --- |
| torchrun, Kubernetes' PyTorchJob, a shell | `RANK`, `WORLD_SIZE` | `MASTER_ADDR`, `MASTER_PORT` |
| `mpirun` of Open MPI | `OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE` | `MASTER_ADDR`; on one machine 127.0.0.1 |
| `srun` of SLURM | `SLURM_PROCID`, `SLURM_NTASKS` | the first host of `SLURM_STEP_NODELIST` |

Where `MASTER_PORT` is not set, the port follows from the job's number. Under torchrun its own store is used, and the
store of torch's default process group where a program has one at the same address.
"""

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from time import monotonic, sleep
from typing import Any
from zlib import crc32

from torch import distributed

from plugrad.collective import Launcher
from plugrad.errors import CollectiveError, ConfigError, LearnerTimeoutError

torch_distributed: Any = distributed  # its stores are not in its types
LOOPBACK = "127.0.0.1"
_LOOK_S = 0.02
PORTS = range(20_000, 30_000)
"""Below the ports that Linux gives to outgoing connections."""


class Environment(Launcher):
    """Reads rank, size and the address of rank 0 from environment variables; see the module."""

    requires = "torch"

    def __init__(self) -> None:
        self.rank, self.size, self._host, self._port = read_environment(os.environ)
        self._store: Any = None

    def connect(self, timeout_s: float) -> None:
        """See `Launcher`."""
        where = f"{self._host}:{self._port}"
        # torchrun's agent serves the store, and numbers its attempts to start the processes.
        is_served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        try:
            store = torch_distributed.TCPStore(
                self._host,
                self._port,
                is_master=self.rank == 0 and not is_served,
                timeout=timedelta(seconds=timeout_s),
                wait_for_workers=False,
                multi_tenant=True,  # a default process group of this process may serve one there already
            )
        except (RuntimeError, ValueError) as error:
            if self.rank == 0:
                raise CollectiveError(
                    f"learner 0 cannot serve torch's store at {where}: {error}", rank=0
                ) from error
            raise LearnerTimeoutError(
                f"learner {self.rank} did not reach learner 0 at {where} within {timeout_s:g} s: {error}; set "
                "MASTER_ADDR and MASTER_PORT to an address of the machine where rank 0 runs",
                rank=0,
                phase="connect",
            ) from error
        self._store = torch_distributed.PrefixStore(f"plugrad/{attempt}", store)

    def put(self, key: str, value: bytes) -> None:
        """See `Launcher`."""
        self._ask(lambda: self._store.set(key, value))

    def get(self, keys: list[str], timeout_s: float) -> list[bytes | None]:
        """See `Launcher`."""

        deadline = monotonic() + timeout_s

        def look() -> list[bytes | None]:
            # Not `wait`: torch warns of each wait that ends without a value.
            while not self._store.check(keys) and monotonic() < deadline:
                sleep(_LOOK_S)
            return [self._store.get(key) if self._store.check([key]) else None for key in keys]

        found: list[bytes | None] = self._ask(look)
        return found

    def _ask(self, call: Any) -> Any:
        try:
            return call()
        except RuntimeError as error:  # torch's errors of a broken connection
            raise CollectiveError(
                f"learner 0, which keeps the addresses of all, is gone: {error}", rank=0
            ) from error


def read_environment(variables: Mapping[str, str]) -> tuple[int, int, str, int]:
    """Where this process stands.

    Args:
        variables: the environment.

    Returns:
        `(rank, size, host of rank 0, port of rank 0)`.

    Raises:
        ConfigError: no launcher's variables are there, one is no number, or nothing says where rank 0 is.
    """
    for rank, size in (
        ("RANK", "WORLD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
    ):
        if rank in variables and size in variables:
            break
    else:
        raise ConfigError(
            'launcher="env": this process has none of RANK and WORLD_SIZE, OMPI_COMM_WORLD_RANK and '
            "OMPI_COMM_WORLD_SIZE, SLURM_PROCID and SLURM_NTASKS. Start the program with torchrun, such as "
            "`torchrun --nproc-per-node 4 train.py`, with mpirun or with srun",
            field="launcher",
        )
    number, count = _number(variables, rank), _number(variables, size)
    if not 0 <= number < count:
        raise ConfigError(
            f'launcher="env": {rank}={number} is not from 0 to {size} - 1 = {count - 1}', field="launcher"
        )
    host = variables.get("MASTER_ADDR") or _host_of_rank_0(variables)
    if host is None:
        raise ConfigError(
            f'launcher="env": {rank} is set, and MASTER_ADDR is not, so nothing says where rank 0 is: for example '
            "`mpirun -x MASTER_ADDR=$(hostname) -x MASTER_PORT=29500 ...`",
            field="launcher",
        )
    if "MASTER_PORT" in variables:
        return number, count, host, _number(variables, "MASTER_PORT")
    job = variables.get("SLURM_JOB_ID") or variables.get("PMIX_NAMESPACE") or ""
    step = variables.get("SLURM_STEP_ID", "")
    return number, count, host, PORTS[crc32(f"{job}/{step}".encode()) % len(PORTS)]


def _number(variables: Mapping[str, str], name: str) -> int:
    try:
        return int(variables[name])
    except ValueError:
        raise ConfigError(
            f'launcher="env": {name}={variables[name]!r} is no number', field="launcher"
        ) from None


def _host_of_rank_0(variables: Mapping[str, str]) -> str | None:
    if "SLURM_PROCID" in variables and "SLURM_NTASKS" in variables:
        nodes = variables.get("SLURM_STEP_NODELIST") or variables.get("SLURM_JOB_NODELIST") or ""
        return first_host(nodes) or None
    is_one_machine = variables.get("OMPI_COMM_WORLD_LOCAL_SIZE") == variables.get("OMPI_COMM_WORLD_SIZE")
    return LOOPBACK if is_one_machine and "OMPI_COMM_WORLD_SIZE" in variables else None


def first_host(nodes: str) -> str:
    """The first host of a list of SLURM's: `gpu[003-005,9],login1` begins with `gpu003`.

    Args:
        nodes: the list, as in `SLURM_JOB_NODELIST`.
    """
    found = re.match(r"([^\[,]*)(?:\[([^\],-]+)[^\]]*\]([^,\[]*))?", nodes.strip())
    return "".join(part or "" for part in found.groups()) if found else ""
