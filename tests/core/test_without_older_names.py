"""The plugin of RLlib's older names can be removed, and new code never passes it."""

import os
import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

ROOT = Path(__file__).parents[2]
GONE = """
import sys


class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "plugrad_rllib":  # also of an installed plugrad
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Gone())
"""
TRAIN = """
import sys, tempfile
import numpy as np
from plugrad_ppo import PPOConfig

config = PPOConfig().environment("CartPole-v1").framework("numpy").debugging(seed=1)
config = config.training(train_batch_size=16, minibatch_size=8, num_epochs=1).env_runners(num_envs_per_env_runner=2)
algorithm = config.rl_module(model_config={"fcnet_hiddens": [4]}).build_algo()
algorithm.train()
path = tempfile.mkdtemp()
algorithm.save_to_path(path)
learner = type(algorithm).from_checkpoint(path).learner_group
for module_id, weights in algorithm.learner_group.get_weights().items():
    for name, array in weights.items():
        np.testing.assert_array_equal(learner.get_weights()[module_id][name], array)
"""
OLDER = {
    "plugrad.LearnerSpec": "import plugrad; plugrad.LearnerSpec",
    "plugrad.SampleBatch": "from plugrad import SampleBatch",
    "Learner.save_state": "import plugrad; plugrad.Learner.save_state",
    "LearnerGroup.async_update": "import plugrad; plugrad.LearnerGroup.async_update",
    "RLModule.as_multi_agent": "import plugrad; plugrad.RLModule.as_multi_agent",
    "Config.resources": "import plugrad; plugrad.AlgorithmConfig().resources(num_learner_workers=1)",
    "training(num_sgd_iter=)": "import plugrad; plugrad.AlgorithmConfig().training(num_sgd_iter=3)",
    "update(num_iters=)": TRAIN + "algorithm.learner_group.update({}, num_iters=2)",
    "Mine.compute_loss": "import plugrad\nclass Mine(plugrad.Learner):\n    def compute_loss(self, **given): ...",
    "Mine.update(num_iters=)": (
        "import plugrad\nclass Mine(plugrad.Learner):\n    def update(self, batch, *, num_iters): ..."
    ),
}


def run(code: str, *roots: Path) -> "subprocess.CompletedProcess[str]":
    paths = [str(each) for each in roots]
    path = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """A copy of the source tree in which the plugin's folder was removed."""
    copy = tmp_path_factory.mktemp("copy")
    for root in ("core", "plugins"):
        copytree(ROOT / root, copy / root, ignore=ignore_patterns("__pycache__", "plugrad_rllib"))
    return copy


def test_without_the_plugin_training_and_checkpoints_work(without):
    code = f"{GONE}{TRAIN}\nimport plugrad\nprint(plugrad.__file__)"
    done = run(code, without / "core", without / "plugins")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith(str(without))


@pytest.mark.parametrize("name", OLDER)
def test_without_the_plugin_an_older_name_is_an_error_that_says_what_to_install(without, name):
    done = run(GONE + OLDER[name], without / "core", without / "plugins")
    last = done.stderr.splitlines()[-1]
    assert f"{name} is an older name of RLlib's" in last
    assert "plugrad_rllib" in last
    assert "pip install" in last


def test_without_the_plugin_what_nobody_has_is_pythons_error(without):
    for code, words in {
        "import plugrad; plugrad.Lerner": "has no attribute 'Lerner'",
        "import plugrad; plugrad.AlgorithmConfig().training(num_epoch=1)": "Did you mean 'num_epochs'?",
        TRAIN + "algorithm.learner_group.update({}, num_epoch=1)": "unexpected keyword argument 'num_epoch'",
        TRAIN + "algorithm.trian()": "'Algorithm' object has no attribute 'trian'",
    }.items():
        done = run(GONE + code, without / "core", without / "plugins")
        assert words in done.stderr.splitlines()[-1]


def test_training_saving_and_probing_load_no_plugin_of_older_names():
    code = f"""{TRAIN}
hasattr(algorithm, "spam"), hasattr(learner, "spam"), hasattr(config, "spam")
assert not [name for name in sys.modules if name.startswith("plugrad_rllib")]
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_an_update_passes_no_line_of_older_names():
    code = f"""{TRAIN}
from pathlib import Path
from plugrad.learner import Learner
local = config.build_learner()
rows = {{
    "obs": np.zeros((8, 4), np.float32), "actions": np.zeros(8, np.int64), "action_logp": np.zeros(8, np.float32),
    "action_dist_inputs": np.zeros((8, 2), np.float32), "advantages": np.ones(8, np.float32),
    "value_targets": np.ones(8, np.float32), "vf_preds": np.zeros(8, np.float32),
}}
local.update(rows)
passed = set()
sys.setprofile(lambda frame, event, argument: passed.add(frame.f_code.co_filename))
local.update(rows)
sys.setprofile(None)
names = {{part for file in passed for part in Path(file).parts}}
assert "learner" in names and "plugrad_ppo" in names
assert not names & {{"deprecation", "plugrad_rllib"}}, passed
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
