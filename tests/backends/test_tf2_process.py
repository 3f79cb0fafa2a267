"""What the tf2 backend leaves as it was in its process: the environment, TensorFlow's switches, the user's settings."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import needs
import pytest

IN_ORDER = "xla_cpu_enable_concurrency_optimized_scheduler"
UNSET = ("XLA_FLAGS", "TF_ENABLE_ONEDNN_OPTS", "TF_CPP_MIN_LOG_LEVEL", "TF_NUM_INTRAOP_THREADS")

LIFE_OF_A_LEARNER = """
import json, os
environments = [dict(os.environ)]
import plugrad_tf2
environments.append(dict(os.environ))

import gymnasium as gym
import numpy as np
from plugrad_bc import BCConfig
from tensorflow.python.framework.test_util import IsMklEnabled

spaces = {"default_policy": (gym.spaces.Box(-1.0, 1.0, (3,), np.float32), gym.spaces.Discrete(2))}
config = BCConfig().framework("tf2").training(minibatch_size=4).rl_module(model_config={"fcnet_hiddens": [4]})
learner = config.debugging(seed=0).build_learner(spaces=spaces)
environments.append(dict(os.environ))
learner.update({"obs": np.ones((8, 3), np.float32), "actions": np.zeros(8, np.int64)})
environments.append(dict(os.environ))
assert learner.update_mode.startswith("complete_update")
print(json.dumps({"environments": environments, "onednn": IsMklEnabled()}))
"""

PLAIN_TENSORFLOW = """
import json, os
before = dict(os.environ)
from tensorflow.python.framework.test_util import IsMklEnabled
changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
print(json.dumps({"changed": changed, "onednn": IsMklEnabled()}))
"""


def printed(code: str, **more: str) -> Any:
    own = {name: value for name, value in os.environ.items() if name not in UNSET} | more
    done = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def xla_options(folder: Path) -> list[str]:
    """Those that differ from XLA's defaults when it compiled the update."""
    (written,) = folder.glob("*_loop_*.debug_options")
    return written.read_text().splitlines()


def test_neither_the_import_nor_a_learner_changes_the_environment_or_tensorflow_switches(
    tmp_path: Path,
) -> None:
    tensorflow = needs.backend("tf2")
    plain = printed(PLAIN_TENSORFLOW)
    found = printed(LIFE_OF_A_LEARNER, TF_NUM_INTRAOP_THREADS="1", XLA_FLAGS=f"--xla_dump_to={tmp_path}")
    before, *after = found["environments"]
    assert after == [before | plain["changed"]] * 3
    assert found["onednn"] == plain["onednn"]
    if tensorflow.__version__.startswith("2.21."):
        assert f"{IN_ORDER}: false" in xla_options(tmp_path), "XLA was asked, without a trace"


@pytest.mark.cross_product
@pytest.mark.parametrize(
    ("threads", "flags"), [("1", f"--{IN_ORDER}=true "), ("2", "")], ids=["the user says so", "two threads"]
)
def test_xla_runs_as_it_would_without_plugrad(threads: str, flags: str, tmp_path: Path) -> None:
    needs.backend("tf2")
    said = {
        "XLA_FLAGS": f"{flags}--xla_dump_to={tmp_path}",
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }
    found = printed(LIFE_OF_A_LEARNER, **said)
    assert f"{IN_ORDER}: false" not in xla_options(tmp_path)
    assert not found["onednn"]
    assert {name: found["environments"][-1][name] for name in said} == said
