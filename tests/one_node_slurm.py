"""SLURM on this machine alone: its controller and the daemon of one node, as root, for tests that call `srun`."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from launched import free_port
from waiting import wait_until

SETTINGS = """
ClusterName=plugrad
SlurmctldHost={host}
SlurmUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}
SlurmdSpoolDir={folder}
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/node.pid
SlurmctldPort={controller}
SlurmdPort={node}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SlurmdParameters=config_overrides
MpiDefault=none
NodeName={host} CPUs=8 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES State=UP
"""


@contextmanager
def one_node_slurm(folder: Path) -> Iterator[dict[str, str]]:
    """A cluster of one node with room for eight processes.

    Args:
        folder: for its files.

    Yields:
        The environment variables with which `srun` finds it.
    """
    settings = folder / "slurm.conf"
    ports = {"controller": free_port(), "node": free_port()}
    host = socket.gethostname().partition(".")[0]
    settings.write_text(SETTINGS.format(folder=folder, host=host, **ports))
    found = {"SLURM_CONF": str(settings)}
    environment = {**os.environ, **found}
    daemons = []
    try:
        for name in ("slurmctld", "slurmd"):
            with (folder / f"{name}.txt").open("w") as said:
                command = [name, "-D", "-f", str(settings)]
                daemons.append(subprocess.Popen(command, env=environment, stdout=said, stderr=said))

        def is_idle() -> bool:
            assert all(each.poll() is None for each in daemons), [
                each.read_text() for each in folder.glob("*.txt")
            ]
            told = subprocess.run(
                ["sinfo", "-h", "-o", "%t"], env=environment, capture_output=True, text=True
            )
            return told.stdout.strip() == "idle"

        wait_until(is_idle, "SLURM's node to be idle", 0.2)
        yield found
    finally:
        for each in reversed(daemons):
            with suppress(ProcessLookupError):
                each.terminate()
            each.wait(20)
