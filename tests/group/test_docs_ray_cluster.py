"""docs/ray-cluster.md: its command trains on a cluster of `ray start`, and its manifest has the fields it should."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs/ray-cluster.md").read_text()
TRAIN = re.compile(r"plugrad train ppo .*")
COMMANDS = TRAIN.findall(PAGE)


def test_all_ways_run_the_same_command() -> None:
    assert len(COMMANDS) == 3
    assert len(set(COMMANDS)) == 1


@pytest.fixture
def cluster_of_ray_start(rays_files: None, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a user of a cluster without tokens, which `ray start` began."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_MODE"}
    environment = {**kept, "HOME": str(tmp_path), "RAY_worker_niceness": "0"}
    ray = [sys.executable, "-c", "from ray.scripts.scripts import main; main()"]
    options = ("--num-cpus", "4", "--include-dashboard=false", "--object-store-memory", "100000000")
    head = ["start", "--head", "--block", "--node-ip-address", "127.0.0.1", "--port", str(port), *options]
    with (tmp_path / "head.log").open("w") as log:
        process = subprocess.Popen([*ray, *head], env=environment, stdout=log, stderr=log)
    try:
        yield {**environment, "RAY_ADDRESS": f"127.0.0.1:{port}"}
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def test_the_command_trains_on_a_cluster_of_ray_start(
    cluster_of_ray_start: Mapping[str, str], tmp_path: Path
) -> None:
    options = shlex.split(COMMANDS[0].replace("/runs/", f"{tmp_path}/").replace("500000", "512"))[1:]
    command = "from plugrad.cli import main; main(prog_name='plugrad')"
    small = ("--training.train_batch_size", "256", "--quiet")
    done = subprocess.run(
        [sys.executable, "-c", command, *options, *small],
        env=cluster_of_ray_start,
        capture_output=True,
        text=True,
        timeout=240,
    )
    log = (tmp_path / "head.log").read_text()
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{log}"
    assert (tmp_path / "cartpole/checkpoints/last").exists()


@pytest.fixture
def manifest() -> Any:
    yaml = pytest.importorskip("yaml")  # Ray has it
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return yaml.safe_load(text)


def test_the_manifest_is_a_job_of_kuberay(manifest: Any) -> None:
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayJob")
    assert manifest["spec"]["entrypoint"] == COMMANDS[0]
    cluster = manifest["spec"]["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    learners = int(re.findall(r"--learners (\d+)", COMMANDS[0])[0])
    assert {workers[each] for each in ("replicas", "minReplicas", "maxReplicas")} == {learners}
    image = f"rayproject/ray:{cluster['rayVersion']}"
    assert image in PAGE
    for group in (cluster["headGroupSpec"], workers):
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        assert container["image"] == "registry.example.com/plugrad:1"
        assert container["resources"]["limits"] == container["resources"]["requests"]
        assert container["env"] == [{"name": "RAY_worker_niceness", "value": "0"}]
        assert [each["name"] for each in container["volumeMounts"]] == [
            each["name"] for each in pod["volumes"]
        ]
        assert COMMANDS[0].endswith(f"--out {container['volumeMounts'][0]['mountPath']}/cartpole")
        assert all(isinstance(each, str) for each in group["rayStartParams"].values()), json.dumps(group)
