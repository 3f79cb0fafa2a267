"""`plugrad migrate`: programs for RLlib are rewritten, and what comes out trains."""

import json
import re
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import needs
import numpy as np
import pytest
from click.testing import CliRunner, Result

from plugrad.cli import main
from plugrad_ppo import PPOConfig

needs.extra("libcst")

PROGRAM = '''"""A program for RLlib."""

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.utils.annotations import override
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, EPISODE_RETURN_MEAN
from ray.tune.registry import register_env
import gymnasium as gym


class Quarter(PPOTorchLearner):
    @override(PPOTorchLearner)
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        return config.learner_config_dict["share"] * loss  # a comment that stays


ray.init()
register_env("poles", lambda cfg: gym.make("CartPole-v1", max_episode_steps=cfg["steps"]))

config = (
    PPOConfig()
    .api_stack(enable_rl_module_and_learner=True)
    .environment("poles", env_config={"steps": 30})
    .training(
        lr=0.001,
        train_batch_size_per_learner=256,
        learner_class=Quarter,
        learner_config_dict={"share": 0.25},
    )
    .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[8]))
    .debugging(log_level="ERROR", seed=3)
)
config.training(num_epochs=2, minibatch_size=64)
config.framework("torch")

algo = config.build()
results = algo.train()
print("return", results[ENV_RUNNER_RESULTS][EPISODE_RETURN_MEAN])
print(f"{algo.config.lr} {algo.config.num_epochs} {algo.config.share} {algo.config.clip_param}")
algo.stop()
ray.shutdown()
'''


def migrate(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["migrate", *map(str, arguments)])


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_a_rewritten_program_trains_with_the_settings_that_it_had(program: Path, tmp_path: Path) -> None:
    needs.backend("torch")
    done = migrate(program, "--out", tmp_path / "new")
    assert done.exit_code == 0, done.output
    text = (tmp_path / "new" / "program.py").read_text()
    assert not re.search(r"\bray\b", text)
    assert "# a comment that stays" in text
    run = subprocess.run(
        [sys.executable, tmp_path / "new" / "program.py"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    first, second = run.stdout.splitlines()[-2:]
    assert 8.0 < float(first.removeprefix("return ")) <= 30.0
    assert second == "0.001 2 0.25 0.3"  # the last one is RLlib's default


def test_nothing_is_changed_unless_it_is_asked_for(program: Path) -> None:
    done = migrate(program)
    assert done.exit_code == 0
    assert "-    .api_stack(" in done.stdout
    assert "+from plugrad_ppo import PPOConfig" in done.stdout
    assert program.read_text() == PROGRAM
    assert migrate(program, "--write").exit_code == 0
    assert "plugrad_ppo" in program.read_text()


def test_what_is_rewritten_once_stays(program: Path) -> None:
    migrate(program, "--write")
    once = program.read_text()
    done = migrate(program, "--write")
    assert done.stdout == ""
    assert program.read_text() == once


def test_what_cannot_be_rewritten_is_named_with_line_and_page(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from ray.rllib.callbacks.callbacks import RLlibCallback\n"
        "from ray.rllib.algorithms.ppo import PPOConfig\n"
        "config = PPOConfig().training(use_gae=True, torch_skip_nan_gradients=True).callbacks(RLlibCallback)\n"
    )
    done = migrate(path)
    assert done.stderr.splitlines() == [
        f"{path}:1: RLlibCallback: write a listener (docs/listeners.md)",
        f"{path}:3: .callbacks(...) was deleted: write a listener (docs/listeners.md) and name it in .plugins(...) "
        "(docs/from-rllib.md)",
        f"{path}:3: training(torch_skip_nan_gradients=...): training(nonfinite='skip') leaves out such minibatches; "
        "'raise' undoes the update (docs/from-rllib.md)",
        f"{path}:3: training(use_gae=...) was deleted: advantages are always GAE's; training(lambda_=1.0) is returns "
        "to go minus values (docs/from-rllib.md)",
    ]


def test_what_is_done_with_an_algorithm_has_its_name_here(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from ray import tune\n"
        "from ray.rllib.algorithms.ppo import PPOConfig\n"
        "from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, EPISODE_RETURN_MEAN, EVALUATION_RESULTS\n"
        "config = PPOConfig().environment('CartPole-v1').env_runners(rollout_fragment_length='auto')\n"
        "config = config.training(train_batch_size=64, minibatch_size=32, num_epochs=1)\n"
        "config = config.evaluation(evaluation_interval=1, evaluation_duration=1)\n"
        "config = config.rl_module(model_config={'fcnet_hiddens': [4]}).framework('torch')\n"
        "algo = config.build()\n"
        "results = algo.train()\n"
        "if EVALUATION_RESULTS in results:\n"
        "    print(results[EVALUATION_RESULTS][ENV_RUNNER_RESULTS][EPISODE_RETURN_MEAN])\n"
        "print(algo.save().checkpoint.path)\n"
        "algo.restore(algo.save(checkpoint_dir='other').checkpoint.path)\n"
        "if False:\n"
        "    tune.Tuner('PPO', param_space=algo.get_module())\n"
        "algo.stop()\n"
    )
    done = migrate(path, "--write")
    assert done.stderr.splitlines() == [
        f"{path}:1: tune.Tuner: plugrad searches and trains without Ray Tune; see the page (docs/tune.md)",
        f"{path}:15: .get_module: algorithm.get_policy() acts, algorithm.learner_group.foreach_learner(...) reaches "
        "modules (docs/use-a-policy.md)",
    ]
    path.write_text(path.read_text().replace("from ray import tune\n", ""))
    command = [sys.executable, str(path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    mean, saved = ran.stdout.split()
    assert float(mean) > 0
    assert saved.endswith("checkpoint")
    assert {"checkpoint", "other"} <= {each.name for each in tmp_path.iterdir()}


@pytest.mark.parametrize("text", ["def f(:\n", "print 'two'\n"])
def test_a_file_that_is_no_python_is_one_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "old.py"
    path.write_text(text)
    done = migrate(path)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"plugrad: error: {path}, line 1: this is no Python")


def test_a_program_that_begins_with_imports_begins_with_them_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("from ray.rllib.algorithms.ppo import PPOConfig\nconfig = PPOConfig()\n")
    assert migrate(path, "--write").exit_code == 0
    assert path.read_text() == "from plugrad_ppo import PPOConfig\nconfig = PPOConfig.rllib_defaults()\n"


def test_other_programs_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "other.py"
    path.write_text("import numpy as np\n\nconfig = dict(a=1)\nconfig.update(b=np.ones(3))\n")
    assert migrate(path).output == ""


ENVIRONMENTS = """
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.utils.framework import try_import_torch
import gymnasium as gym

torch, nn = try_import_torch()


class Two(MultiAgentEnv):
    def __init__(self, config=None):
        super().__init__()
        self.agents = ["a", "b"]
        self.observation_spaces = {a: gym.spaces.Box(-1, 1, (2,)) for a in self.agents}
        self.action_spaces = {a: gym.spaces.Discrete(config["n"]) for a in self.agents}
        self.left = 0

    def reset(self, *, seed=None, options=None):
        self.left = 5
        return {a: self.get_observation_space(a).sample() for a in self.agents}, {}

    def step(self, actions):
        self.left -= 1
        obs = {a: self.get_observation_space(a).sample() for a in self.agents}
        rewards = {a: float(actions[a]) for a in self.agents}
        return obs, rewards, {"__all__": self.left == 0}, {"__all__": False}, {}


algo = (
    PPOConfig()
    .environment(Two, env_config={"n": 2})
    .framework("numpy")
    .multi_agent(policies={"a", "b"}, policy_mapping_fn=lambda agent, episode, **kw: agent)
    .training(train_batch_size=32, minibatch_size=16, num_epochs=1)
    .rl_module(model_config={"fcnet_hiddens": [4]})
    .build_algo()
)
assert 0.0 <= algo.train()["env_runners"]["episode_return_mean"] <= 10.0
"""


def test_an_environment_of_several_agents_trains(tmp_path: Path) -> None:
    needs.backend("torch")
    path = tmp_path / "two.py"
    path.write_text(ENVIRONMENTS)
    migrate(path, "--write")
    run = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


# --- weights ---

RLLIB = Path(__file__).parents[1] / "data/rllib_module"
"""Weights that RLlib 2.60 saved, and what its modules compute with them."""
SPACES = {"shared": gym.spaces.Discrete(2), "separate": gym.spaces.Box(-1.0, 1.0, (2,))}


@pytest.mark.parametrize("name", SPACES)
def test_weights_of_rllib_give_what_they_gave_there(name: str, tmp_path: Path) -> None:
    done = migrate(RLLIB / name, "--out", tmp_path / "weights", "--trust-pickle")
    assert done.exit_code == 0, done.output
    spaces = {"default_policy": (gym.spaces.Box(-1.0, 1.0, (4,)), SPACES[name])}
    model = {"fcnet_hiddens": [6, 5], "vf_share_layers": name == "shared", "free_log_std": False}
    learner = PPOConfig().framework("numpy").rl_module(model_config=model).build_learner(spaces=spaces)
    learner.module.restore_from_path(tmp_path / "weights")
    expected = json.loads((RLLIB / name / "expected.json").read_text())
    acted = learner.compute_actions(np.array(expected["obs"], np.float32))
    np.testing.assert_allclose(acted["action_dist_inputs"], expected["inputs"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(acted["vf_preds"], expected["values"], rtol=1e-5, atol=1e-6)


def test_a_pickled_checkpoint_is_read_only_where_that_is_told(tmp_path: Path) -> None:
    done = migrate(RLLIB / "shared", "--out", tmp_path / "weights")
    assert done.exit_code == 1
    assert "if it is yours, add --trust-pickle" in done.stderr
    assert not (tmp_path / "weights").exists()


@pytest.mark.parametrize("payload", [b"cos\nsystem\n(S'touch ran'\ntR.", b"\x80\x04", b"no pickle"])
def test_a_file_that_names_more_than_arrays_runs_nothing(
    payload: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "module_state.pkl").write_bytes(payload)
    done = migrate("mine", "--out", "weights", "--trust-pickle")
    assert done.exit_code == 1
    assert "module_state.pkl was not read" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]


def test_unpickling_is_never_imported() -> None:
    code = "import plugrad.cli.migrate.command, sys; assert 'plugrad.cli.migrate.unpickle_child' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
