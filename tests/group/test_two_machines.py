"""A group on two machines with a wire between them that is slow, breaks, is cut, and loses one machine."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from two_machines import TwoMachines, why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

DRIVER = """
import json, os, sys, threading, ray
from groups import group_config
from learning import largest_difference, ppo_batch
from two_machines import ADDRESSES, kill_machine, set_wire

backend, settings = sys.argv[1], json.loads(sys.argv[2])
ray.init(
    address=f"{ADDRESSES[0]}:6379", _node_ip_address=ADDRESSES[0], logging_level="ERROR", log_to_driver=False
)
config = group_config(backend).framework(backend, compile="none").learners(
    num_learners=2, num_cpus_per_learner=1, on_failure="shrink", timeout_s=20, **settings
)
one = config.learners(num_learners=0).build_learner()
wire = lambda **settings: set_wire(os.environ["WIRE"], **settings)
found = {}

def train(what):
    for _ in range(2):
        batch = ppo_batch(64, seed=len(found))
        one.update(batch), group.update(batch)
    found[what] = [len(group), largest_difference(one.get_weights(), group.get_weights())]

with config.build_learner_group() as group:
    found["collective"] = group.get_stats()["collective"]
    train("plain")
    wire(delay_s=0.02, bytes_per_s=2e6)
    train("slow")
    wire(delay_s=0.0, bytes_per_s=1e9, resets=1)
    train("broken")
    wire(is_cut=True)
    threading.Timer(1.0, lambda: wire(is_cut=False)).start()
    train("cut for a second")
    kill_machine(os.environ["MACHINES"].split()[1])
    train("one is gone")
print(json.dumps(found))
ray.shutdown()
"""


@pytest.fixture
def machines(rays_files: None) -> Iterator[TwoMachines]:
    with TemporaryDirectory(prefix="pg-") as folder, TwoMachines(Path(folder)) as made:
        yield made


def _run(machines: TwoMachines, *arguments: str) -> Any:
    done = subprocess.run(
        machines.command(0, [sys.executable, "-c", DRIVER, *arguments]),
        env=machines.environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))


@pytest.mark.parametrize(
    ("backend", "collective"),
    [
        ("torch", "auto"),
        *(
            pytest.param(backend, name, marks=pytest.mark.long)
            for backend in ("torch", "tf2", "jax")
            for name in ("gloo", "ray")
        ),
    ],
)
def test_learners_on_two_machines_are_one_whatever_the_wire_does(
    machines: TwoMachines, backend: str, collective: str
) -> None:
    found = _run(machines, backend, json.dumps({"collective": collective}))
    assert found.pop("collective") == {"auto": "gloo"}.get(collective, collective)
    assert [size for size, _ in found.values()] == [2, 2, 2, 2, 1]
    assert max(difference for _, difference in found.values()) < 1e-6
