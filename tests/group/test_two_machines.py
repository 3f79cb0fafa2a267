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

BEGIN = """
import json, os, signal, sys, threading, time, ray
from random import Random
from groups import group_config
from learning import largest_difference, ppo_batch
from plugrad import DEFAULT_MODULE_ID
from plugrad.learner.state.state import digest
from two_machines import ADDRESSES, kill_machine, set_wire

backend, settings = sys.argv[1], json.loads(sys.argv[2])
wire = lambda **settings: set_wire(os.environ["WIRE"], **settings)
ray.init(
    address=f"{ADDRESSES[0]}:6379", _node_ip_address=ADDRESSES[0], logging_level="ERROR", log_to_driver=False
)
"""

DRIVER = """
config = group_config(backend).framework(backend, compile="none").learners(
    num_learners=2, num_cpus_per_learner=1, on_failure="shrink", timeout_s=20, **settings
)
one = config.learners(num_learners=0).build_learner()
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

SOAK = """
num_updates, num_kills = settings.pop("num_updates"), settings.pop("num_kills")
config = group_config(backend, num_epochs=1).framework(backend, compile="none").learners(
    num_learners=2, num_cpus_per_learner=0.3, timeout_s=20, max_restarts=num_updates, **settings
)
one = config.learners(num_learners=0).build_learner()
rng = Random(0)
faults = ["kill"] * num_kills + ["cut", "reset", "resize"] * (num_kills // 2)
at = dict(zip(rng.sample(range(5, num_updates - 5), len(faults)), faults))
kill = lambda pid: os.kill(pid, signal.SIGKILL)

with config.build_learner_group() as group:
    worst, begun = 0.0, time.monotonic()
    for n in range(num_updates):
        fault = at.get(n)
        timer = None
        if fault == "kill":
            if len(group) == 1:  # whose state nobody else has
                group.resize(2)
            victim = rng.choice(group.foreach_learner(lambda learner: os.getpid()))
            timer = threading.Timer(rng.uniform(0.0, 0.05), kill, [victim])
        elif fault == "cut":
            wire(is_cut=True)
            timer = threading.Timer(rng.uniform(0.1, 2.0), wire, kwargs={"is_cut": False})
        elif fault == "reset":
            wire(resets=1)
        elif fault == "resize":
            group.resize(rng.choice([size for size in (1, 2, 3) if size != len(group)]))
        if timer:
            timer.start()
        batch = ppo_batch(64, seed=n)
        one.update(batch)
        number = group.update(batch)[0][DEFAULT_MODULE_ID]["weights_seq_no"]
        if timer:
            timer.join()
        wire(resets=0)
        assert number == n + 1, (number, n, fault)
        if n % 1000 == 999:
            print(n + 1, "updates", round(time.monotonic() - begun), "s", file=sys.stderr)
        if fault or n % 100 == 99:
            assert len(set(group.foreach_learner(digest))) == 1, (n, fault)
            worst = max(worst, largest_difference(one.get_weights(), group.get_weights()) / (n + 1))
            assert worst < 1e-6, (worst, n, fault)
    print(json.dumps({"worst": worst, "faults": len(at)}))
ray.shutdown()
"""


@pytest.fixture
def machines(rays_files: None) -> Iterator[TwoMachines]:
    with TemporaryDirectory(prefix="pg-") as folder, TwoMachines(Path(folder)) as made:
        yield made


@pytest.fixture
def lasting_machines(rays_files: None) -> Iterator[TwoMachines]:
    """Two machines that no load and no cut makes Ray take for dead: learners die here, machines do not."""
    with TemporaryDirectory(prefix="pg-") as folder, TwoMachines(Path(folder), dead_after=120) as made:
        yield made


def _run(machines: TwoMachines, script: str, *arguments: str, timeout_s: float = 200) -> Any:
    done = subprocess.run(
        machines.command(0, [sys.executable, "-c", BEGIN + script, *arguments]),
        env=machines.environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
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
    found = _run(machines, DRIVER, backend, json.dumps({"collective": collective}))
    assert found.pop("collective") == {"auto": "gloo"}.get(collective, collective)
    assert [size for size, _ in found.values()] == [2, 2, 2, 2, 1]
    assert max(difference for _, difference in found.values()) < 1e-6


@pytest.mark.long
@pytest.mark.parametrize("backend", ["torch", "tf2"])
def test_kills_cuts_resets_and_resizes_lose_no_update_and_repeat_none(
    lasting_machines: TwoMachines, backend: str
) -> None:
    settings = {"num_updates": 10_000, "num_kills": 50}
    found = _run(lasting_machines, SOAK, backend, json.dumps(settings), timeout_s=3500)
    assert found["faults"] == 50 + 3 * 25
    assert found["worst"] < 1e-6
