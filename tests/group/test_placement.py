"""Placement by Ray's placement groups: two nodes with four GPUs each, which are fake, and one cluster for all tests."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def found(rays_files: None) -> Any:
    """What `placed.py` prints; Ray takes one cluster per process, and this one may have another."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = Path(__file__).with_name("placed.py")
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("what", "actors", "nodes"),
    [
        ("pack", 2, 1),
        ("one replaced", 2, 1),
        ("resized", 3, None),
        ("spread", 2, 2),
        ("env runners, pack", 2, 1),
        ("env runners, spread", 2, 2),
    ],
)
def test_actors_are_packed_on_few_nodes_or_spread_over_many(found, what, actors, nodes) -> None:
    where = found["nodes"][what]
    assert len(where) == actors
    assert nodes is None or len({node for node, _ in where}) == nodes


@pytest.mark.parametrize("what", ["pack", "one replaced", "resized", "spread"])
def test_each_learner_has_a_gpu_of_its_own(found, what) -> None:
    where = found["nodes"][what]
    assert all(gpu for _, gpu in where)
    assert len({(node, gpu) for node, gpu in where}) == len(where)


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (
            0,
            (
                "placement='pack' of learners: 3 bundles of 1 CPU, 3 GPU each were asked for",
                "not reserved them in timeout_s=1",
                ": 4 CPU, 4 GPU; node ",
                "room for 2",
                "learners(num_learners=...) with fewer",
            ),
        ),
        (1, ("placement='pack' of learners", "there is nothing to reserve", "num_cpus_per_learner")),
        (
            2,
            (
                "env_runner_placement='spread': 9 bundles of 1 CPU each were asked for",
                "room for 8",
                "env_runners(num_env_runners=...) with fewer",
            ),
        ),
    ],
)
def test_an_impossible_placement_says_what_was_asked_and_what_is_there(found, error, parts) -> None:
    message = found["errors"][error]
    assert [part for part in parts if part not in message] == [], message


def test_weights_are_encoded_once_for_env_runners_on_two_nodes(found) -> None:
    several, arrays = found["encoded"]
    assert several == [arrays, arrays]
