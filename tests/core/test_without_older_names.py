"""The plugin of what only RLlib's users need can be removed, and new code never passes it."""

from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest
from forked import forked

ROOT = Path(__file__).parents[2]
GONE = """
import sys


class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "plugrad_rllib":  # also of an installed plugrad
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Gone())
"""
PRELUDE = "import sys, plugrad_ppo, plugrad.algorithm"
TRAIN = """
import sys, tempfile
import numpy as np
from plugrad_ppo import PPOConfig

config = PPOConfig().environment("CartPole-v1").framework("numpy").debugging(seed=1)
config = config.training(train_batch_size=16, minibatch_size=8, num_epochs=1).env_runners(num_envs_per_env_runner=2)
config = config.rl_module(model_config={"fcnet_hiddens": [1]})
algorithm = config.build_algo()
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

ENVIRONMENT = """
import gymnasium as gym
import numpy as np
from plugrad_ppo import PPOConfig

BOX, TWO = gym.spaces.Box(-1.0, 1.0, (1,), np.float32), gym.spaces.Discrete(2)


class Parallel:
    possible_agents = ["a", "b"]
    def observation_space(self, agent): return BOX
    def action_space(self, agent): return TWO
    def reset(self, seed=None, options=None):
        self.agents, self.steps = ["a", "b"], 0
        return self.all(np.zeros(1, np.float32)), self.all({})
    def step(self, actions):
        self.steps += 1
        end, last = self.steps == 4, np.full(1, 0.1 * self.steps, np.float32)
        self.agents = [] if end else self.agents
        return self.all(last), self.all(1.0), self.all(end), self.all(False), self.all({})
    def all(self, each): return {"a": each, "b": each}


class OfRLlib(Parallel):
    observation_space = action_space = None
    observation_spaces, action_spaces = {"a": BOX, "b": BOX}, {"a": TWO, "b": TWO}
    def step(self, actions):
        observations, rewards, terminateds, truncateds, infos = super().step(actions)
        return observations, rewards, {**terminateds, "__all__": not self.agents}, truncateds, infos


def train(env):
    config = PPOConfig().environment(env).framework("numpy").env_runners(num_envs_per_env_runner=2)
    config = config.training(train_batch_size=16, minibatch_size=8, num_epochs=1)
    algorithm = config.rl_module(model_config={"fcnet_hiddens": [1]}).build_algo()
    print(algorithm.train()["env_runners"]["episode_return_mean"])
"""
COMMAND = "from plugrad.cli import main\n"
OF_RLLIB = {
    "plugrad migrate is for users of RLlib": COMMAND + "main(['migrate', '.'])",
    "plugrad migrate": COMMAND + "main(['migrate', '--help'])",
    ":OfRLlib' has RLlib's interface to many agents": ENVIRONMENT + "train(OfRLlib)",
    "PPOConfig.rllib_defaults() has RLlib's values": "from plugrad_ppo import PPOConfig; PPOConfig.rllib_defaults()",
    "BCConfig.rllib_defaults() has RLlib's values": "from plugrad_bc import BCConfig; BCConfig.rllib_defaults()",
}
"""`{what the error says: a program that needs the plugin}`."""


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """A Python that runs a copy of the source tree in which the plugin's folder was removed."""
    copy = tmp_path_factory.mktemp("copy")
    for root in ("core", "plugins"):
        copytree(ROOT / root, copy / root, ignore=ignore_patterns("__pycache__", "plugrad_rllib"))
    with forked(GONE + PRELUDE, copy / "core", copy / "plugins") as python:
        yield python


@pytest.fixture(scope="module")
def whole():
    """A Python with the plugin."""
    with forked(PRELUDE) as python:
        yield python


def test_without_the_plugin_training_and_checkpoints_work(without):
    done = without.run(f"{TRAIN}\nprint(plugrad.__file__)")
    assert done.returncode == 0, done.stderr
    assert "copy" in done.stdout
    assert not Path(done.stdout.strip()).is_relative_to(ROOT)


@pytest.mark.parametrize("name", OLDER)
def test_without_the_plugin_an_older_name_is_an_error_that_says_what_to_install(without, name):
    done = without.run(OLDER[name])
    last = done.stderr.splitlines()[-1]
    assert f"{name} is an older name of RLlib's" in last
    assert "plugrad_rllib" in last
    assert "pip install" in last


@pytest.mark.parametrize("said", OF_RLLIB)
def test_without_the_plugin_what_is_rllibs_is_an_error_that_says_what_to_install(without, said):
    done = without.run(OF_RLLIB[said])
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert said in last
    assert "plugin plugrad_rllib" in last
    assert "pip install --force-reinstall plugrad" in last


@pytest.mark.parametrize("env", ["Parallel", "OfRLlib"])
def test_with_the_plugin_both_interfaces_of_many_agents_train_alike(whole, env):
    done = whole.run(f"{ENVIRONMENT}train({env})")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "8.0\n"


def test_without_the_plugin_other_environments_of_many_agents_train(without):
    done = without.run(f"{ENVIRONMENT}train(Parallel)")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "8.0\n"


def test_without_the_plugin_the_command_line_trains_and_its_help_lists_every_command(without, tmp_path):
    where, small = str(tmp_path / "run"), "{fcnet_hiddens = [1]}"
    train = ["train", "ppo", "CartPole-v1", "--backend", "numpy", "--stop-timesteps", "64", "--out", where]
    train += ["--training.train_batch_size", "64", "--rl_module.model_config", small, "--quiet"]
    for arguments in (["--help"], train, ["eval", where, "--episodes", "1"]):
        done = without.run(f"{COMMAND}main({arguments})")
        assert done.returncode == 0, done.stderr
        if arguments == ["--help"]:
            assert "  migrate " in done.stdout


def test_without_the_plugin_what_nobody_has_is_pythons_error(without):
    for code, words in {
        "import plugrad; plugrad.Lerner": "has no attribute 'Lerner'",
        "import plugrad; plugrad.AlgorithmConfig().training(num_epoch=1)": "Did you mean 'num_epochs'?",
        TRAIN + "algorithm.learner_group.update({}, num_epoch=1)": "unexpected keyword argument 'num_epoch'",
        TRAIN + "algorithm.trian()": "'Algorithm' object has no attribute 'trian'",
    }.items():
        done = without.run(code)
        assert words in done.stderr.splitlines()[-1]


def test_training_saving_and_probing_load_no_plugin_of_older_names(whole):
    code = f"""{TRAIN}
hasattr(algorithm, "spam"), hasattr(learner, "spam"), hasattr(config, "spam")
assert not [name for name in sys.modules if name.startswith("plugrad_rllib")]
"""
    done = whole.run(code)
    assert done.returncode == 0, done.stderr


def test_an_update_passes_no_line_of_older_names(whole):
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
    done = whole.run(code)
    assert done.returncode == 0, done.stderr
