"""Ray's own process is killed: the driver gets a clear error, and continues from its checkpoint in a new Ray."""

import os
import subprocess
import sys
from pathlib import Path

CODE = """
import os, signal, sys, threading, time
import pytest
import ray
from learning import digest, ppo_batch, ppo_config
from plugrad.errors import LearnerGroupDeadError

config = ppo_config("numpy").learners(num_learners=1, num_cpus_per_learner=0.1, timeout_s=3600, build_timeout_s=120)


def raylet(group):
    (pid,) = group.foreach_learner(lambda learner: os.getppid())
    with open(f"/proc/{pid}/comm") as name:
        assert name.read().strip() == "raylet"
    return pid


group = config.build_learner_group()
group.update(ppo_batch(16))
group.save_to_path(sys.argv[1])
saved = digest(group.get_state()["learner"])
future = group.submit(ppo_batch(16, seed=1))
future.result(60)
os.kill(raylet(group), signal.SIGKILL)
time.sleep(1)
for call in (lambda: group.update(ppo_batch(16)), group.get_weights, lambda: group.submit(ppo_batch(16)).result(60)):
    with pytest.raises(LearnerGroupDeadError, match=r"raylet, pid \\d+\\) has died.*restore"):
        call()
with pytest.raises(LearnerGroupDeadError, match="ray.shutdown"):
    config.build_learner_group()
group.shutdown()
ray.shutdown()
with pytest.raises(LearnerGroupDeadError):
    group.update(ppo_batch(16))

group = config.build_learner_group()
group.restore_from_path(sys.argv[1])
assert digest(group.get_state()["learner"]) == saved
group.update(ppo_batch(16))
victim = raylet(group)
threading.Timer(1, os.kill, (victim, signal.SIGKILL)).start()
with pytest.raises(LearnerGroupDeadError, match="raylet"):
    group.foreach_learner(lambda learner: time.sleep(5))
group.shutdown()
ray.shutdown()
print("all said")
"""


def test_a_driver_whose_ray_is_killed_is_told_and_goes_on_from_its_checkpoint(
    rays_files: None, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "RAY_worker_niceness": "0"}
    command = [sys.executable, "-c", CODE, str(tmp_path / "saved")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["all said"]), done.stderr[-3000:]
