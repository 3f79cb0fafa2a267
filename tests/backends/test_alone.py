"""A backend needs no other framework: neither installed nor imported."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from needs import FRAMEWORKS

pytestmark = pytest.mark.smoke

TRAIN_SAVE_AND_RESUME = """
import importlib, json, sys
import numpy as np
framework, backend, path = sys.argv[1:]
importlib.import_module(framework)
brought = set(sys.modules)  # TensorFlow 2.18 imports JAX itself, where that is installed
from plugrad.algorithm import Algorithm
from plugrad_ppo import PPOConfig

config = (
    PPOConfig()
    .environment("CartPole-v1")
    .framework(backend)
    .training(train_batch_size=128, minibatch_size=32, num_epochs=2)
    .env_runners(num_envs_per_env_runner=4)
    .debugging(seed=1)
)
algorithm = config.build_algo()
before = algorithm.learner_group.get_weights()
losses = [algorithm.train()["learners/default_policy/total_loss"] for _ in range(2)]
algorithm.save_to_path(path)
resumed = Algorithm.from_checkpoint(path)

def flat(weights):
    return np.concatenate([np.ravel(p) for module in weights.values() for _, p in sorted(module.items())])

print(json.dumps({
    "losses": losses,
    "moved": float(np.abs(flat(algorithm.learner_group.get_weights()) - flat(before)).max()),
    "same": bool((flat(resumed.learner_group.get_weights()) == flat(algorithm.learner_group.get_weights())).all()),
    "next": [resumed.train()["learners/default_policy/total_loss"],
             algorithm.train()["learners/default_policy/total_loss"]],
    "modules": sorted(set(sys.modules) - brought),
}))
"""


def test_ppo_trains_saves_and_resumes_with_this_framework_alone(backend: str, tmp_path: Path) -> None:
    arguments = [
        sys.executable,
        "-c",
        TRAIN_SAVE_AND_RESUME,
        FRAMEWORKS[backend],
        backend,
        str(tmp_path / "checkpoint"),
    ]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert all(abs(loss) < 100 for loss in found["losses"])
    assert found["moved"] > 1e-5
    assert found["same"]
    assert found["next"][0] == found["next"][1], "a resumed run goes on as if it had not been interrupted"
    others = set(FRAMEWORKS.values()) - {FRAMEWORKS[backend]}
    assert set(found["modules"]) & (others | {"ray"}) == set()
