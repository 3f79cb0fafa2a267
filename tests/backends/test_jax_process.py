"""What the jax backend leaves as it was in its process, and what it keeps on disk for the next one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import needs

SWITCH = "jax_compilation_cache_dir"
LIFE_OF_A_LEARNER = """
import json, os
import jax
environment, switches = dict(os.environ), dict(jax.config.values)

import gymnasium as gym
import numpy as np
from plugrad_bc import BCConfig

spaces = {"default_policy": (gym.spaces.Box(-1.0, 1.0, (3,), np.float32), gym.spaces.Discrete(2))}
config = BCConfig().framework("jax").training(minibatch_size=4).rl_module(model_config={"fcnet_hiddens": [4]})
learner = config.debugging(seed=0).build_learner(spaces=spaces)
hits = []
jax.monitoring.register_event_listener(lambda event, **more: hits.append(event.endswith("cache_hits")))
learner.update({"obs": np.ones((8, 3), np.float32), "actions": np.zeros(8, np.int64)})
assert learner.update_mode == "complete_update: the whole update as one XLA program"
assert dict(os.environ) == environment
changed = {name: value for name, value in jax.config.values.items() if switches[name] != value}
print(json.dumps({"changed": changed, "hits": sum(hits)}))
"""


def life(**environment: str) -> Any:
    """Switches that a learner changed, and how many programs it found compiled."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")} | environment
    command = [sys.executable, "-c", LIFE_OF_A_LEARNER]
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_an_update_is_compiled_once_for_all_processes_and_no_other_switch_is_set(tmp_path: Path) -> None:
    needs.backend("jax")
    first, second = (life(XDG_CACHE_HOME=str(tmp_path)) for _ in range(2))
    assert list(first["changed"]) == [SWITCH]
    folder = Path(first["changed"][SWITCH])
    assert folder.is_relative_to(tmp_path / "plugrad")
    assert folder.stat().st_mode & 0o077 == 0, "others might put code there"
    assert first["hits"] == 0
    assert second["hits"] > 0


def test_a_folder_that_the_user_chose_stays(tmp_path: Path) -> None:
    needs.backend("jax")
    found = life(XDG_CACHE_HOME=str(tmp_path / "ours"), JAX_COMPILATION_CACHE_DIR=str(tmp_path / "theirs"))
    assert found["changed"] == {}
    assert not (tmp_path / "ours").exists()


def test_where_no_folder_can_be_made_a_learner_trains_without_one(tmp_path: Path) -> None:
    needs.backend("jax")
    (tmp_path / "a file").write_text("")
    assert life(XDG_CACHE_HOME=str(tmp_path / "a file")) == {"changed": {}, "hits": 0}
