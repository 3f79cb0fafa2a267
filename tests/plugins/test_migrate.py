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


def named(done: Result) -> list[str]:
    """The lines that were named; the last line of stderr counts them, so that nobody misses them."""
    assert done.exit_code == 0, done.output
    if not done.stderr:
        assert done.exit_code == 0, done.output
        return []
    *lines, last = done.stderr.splitlines()
    number = len({line.split(":")[1] for line in lines})
    assert last == f"{number} {'line needs' if number == 1 else 'lines need'} a look: see above"
    return lines


def rewritten(folder: Path, program: str) -> tuple[str, list[str]]:
    """A program's new text, and the lines that were named, without the file."""
    path = folder / "mine.py"
    path.write_text(program)
    lines = named(migrate(path, "--write"))
    return path.read_text(), [line.removeprefix(f"{path}:") for line in lines]


def run(folder: Path, text: str) -> list[str]:
    """The lines that a program prints."""
    (folder / "run.py").write_text(text)
    command = [sys.executable, "-W", "error::UserWarning", "run.py"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


LOG_LEVEL = "debugging(log_level=...) was deleted: set the level of Python's logging (docs/from-rllib.md)"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_a_rewritten_program_trains_with_the_settings_that_it_had(program: Path, tmp_path: Path) -> None:
    needs.backend("torch")
    done = migrate(program, "--out", tmp_path / "new")
    assert named(done) == [f"{program}:36: {LOG_LEVEL}"]
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
    assert "-    .api_stack(" in done.stdout
    assert "+from plugrad_ppo import PPOConfig" in done.stdout
    assert program.read_text() == PROGRAM
    migrate(program, "--write")
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
        "from ray.rllib.core.models.catalog import Catalog\n"
        "from ray.rllib.algorithms.ppo import PPOConfig\n"
        "config = PPOConfig().training(use_gae=True, torch_skip_nan_gradients=True).experimental()\n"
    )
    done = migrate(path)
    assert named(done) == [
        f"{path}:1: Catalog: rl_module(model_config={{...}}), or a module of your own (docs/your-model.md)",
        f"{path}:3: .experimental(...) was deleted: plugrad has no such switches (docs/from-rllib.md)",
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
        "assert str(algo.save_to_path()).endswith('checkpoint')\n"
        "if False:\n"
        "    tune.Tuner('PPO', param_space=algo.get_module())\n"
        "algo.stop()\n"
    )
    done = migrate(path, "--write")
    assert named(done) == [
        f"{path}:1: tune.Tuner: what Ray Tune runs here is tune.Tuner(trainable(config), ...); see the page "
        "(docs/ray-tune.md)",
        f"{path}:16: .get_module: algorithm.get_policy() acts; the module is "
        "algorithm.learner_group.foreach_learner(lambda learner: learner.module[module_id])[0] (docs/use-a-policy.md)",
    ]
    path.write_text(path.read_text().replace("from ray import tune\n", ""))
    command = [sys.executable, str(path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    mean, saved = ran.stdout.split()
    assert float(mean) > 0
    assert saved.endswith("checkpoint")
    assert {"checkpoint", "other"} <= {each.name for each in tmp_path.iterdir()}


PPO = "from ray.rllib.algorithms.ppo import PPOConfig\n"
MULTIPLY = "plugrad counts the rows of all learners: multiply by num_learners (docs/from-rllib.md)"


@pytest.mark.parametrize(
    ("theirs", "ours", "lines"),
    [
        (
            ".training(train_batch_size_per_learner=500, minibatch_size=100).learners(num_learners=2)",
            ".training(train_batch_size=1000, minibatch_size=200).learners(num_learners=2)",
            [],
        ),
        (
            ".training(train_batch_size_per_learner=500).learners(num_learners=0)",
            ".training(train_batch_size=500).learners(num_learners=0)",
            [],
        ),
        (
            ".training(train_batch_size=500, minibatch_size=None).learners(num_learners=2)",
            ".training(train_batch_size=500, minibatch_size=None).learners(num_learners=2)",
            [],
        ),
        (
            ".training(train_batch_size_per_learner=rows, minibatch_size=10).learners(num_learners=2)",
            ".training(train_batch_size=rows, minibatch_size=20).learners(num_learners=2)",
            [f"training(train_batch_size_per_learner=...): {MULTIPLY}"],
        ),
        (
            ".learners(num_learners=number).training(train_batch_size_per_learner=500, sgd_minibatch_size=10)",
            ".learners(num_learners=number).training(train_batch_size=500, minibatch_size=10)",
            [
                f"training(sgd_minibatch_size=...): {MULTIPLY}",
                f"training(train_batch_size_per_learner=...): {MULTIPLY}",
            ],
        ),
        (
            ".learners(num_learners=2)",
            ".learners(num_learners=2)",
            [
                "num_learners=2: RLlib's default minibatch_size=128 is of each learner, plugrad's of all: set "
                "training(minibatch_size=...) (docs/from-rllib.md)"
            ],
        ),
    ],
)
def test_rows_of_each_learner_become_rows_of_all(
    theirs: str, ours: str, lines: list[str], tmp_path: Path
) -> None:
    text, found = rewritten(tmp_path, f"{PPO}config = PPOConfig(){theirs}\n")
    assert text.splitlines()[-1] == f"config = PPOConfig.rllib_defaults(){ours}"
    assert found == [f"2: {line}" for line in lines]


def test_the_conservative_weight_is_half_as_large(tmp_path: Path) -> None:
    begin = "from ray.rllib.algorithms.cql import CQLConfig\nconfig = CQLConfig()"
    text, found = rewritten(tmp_path, f"{begin}.training(min_q_weight=5.0, lagrangian_thresh=thresh)\n")
    ours = "CQLConfig.rllib_defaults().training(min_q_weight=2.5, lagrangian_thresh=thresh)"
    assert text.splitlines()[-1] == f"config = {ours}"
    note = "plugrad halves the squared error beside it: halve this, too (docs/from-rllib.md)"
    assert found == [f"2: training(lagrangian_thresh=...): {note}"]


DQN = "from ray.rllib.algorithms.dqn import DQNConfig\n"
REPLAY = "(docs/replay.md)"


@pytest.mark.parametrize(
    ("theirs", "ours", "lines"),
    [
        (
            ".training(replay_buffer_config={'type': 'PrioritizedEpisodeReplayBuffer', 'capacity': 9, 'alpha': 0.5})",
            ".training(replay_buffer_config={'type': \"prioritized\", 'capacity': 9, 'alpha': 0.5})",
            [],
        ),
        (
            ".training(replay_buffer_config={'type': 'EpisodeReplayBuffer', 'capacity': 9, 'num_shards': 1})",
            ".training(replay_buffer_config={'type': \"uniform\", 'capacity': 9})",
            [f"replay_buffer_config has no num_shards: it was deleted {REPLAY}"],
        ),
        (
            ".training(replay_buffer_config={'type': Mine})",
            ".training(replay_buffer_config={'type': Mine})",
            [f'replay_buffer_config: type Mine: there are "uniform" and "prioritized" {REPLAY}'],
        ),
        (
            ".training(replay_buffer_config=mine)",
            ".training(replay_buffer_config=mine)",
            [f"replay_buffer_config: give a dict of type, capacity, alpha, beta {REPLAY}"],
        ),
        (
            ".reporting(metrics_num_episodes_for_smoothing=5, min_sample_timesteps_per_iteration=9)",
            ".reporting(min_sample_timesteps_per_iteration=9)",
            [
                "reporting(metrics_num_episodes_for_smoothing=...) was deleted: means are over the last 20 episodes "
                "(docs/from-rllib.md)"
            ],
        ),
        (
            ".reporting(keep_per_episode_custom_metrics=5)",
            ".reporting(keep_per_episode_custom_metrics=5)",
            [
                "reporting(keep_per_episode_custom_metrics=...): plugrad has no such setting (docs/from-rllib.md)"
            ],
        ),
        (
            ".env_runners(normalize_actions=True, clip_actions=True)",
            ".env_runners(normalize_actions=True)",
            [
                "env_runners(clip_actions=...) was deleted: actions of a Box are always clipped to its bounds "
                "(docs/from-rllib.md)",
                "env_runners(normalize_actions=...): actions of a Box are clipped to its bounds. To scale them: "
                "env_runners(env_wrappers=[['gymnasium.wrappers:RescaleAction', {'min_action': -1.0, 'max_action': "
                "1.0}]]) (docs/from-rllib.md)",
            ],
        ),
        (
            ".environment('A-v0', clip_rewards=True)",
            ".environment('A-v0').env_runners(clip_rewards=True)",
            [],
        ),
        (
            ".evaluation(evaluation_duration=7, evaluation_duration_unit='episodes')",
            ".evaluation(evaluation_num_episodes=7)",
            [],
        ),
        (
            ".evaluation(evaluation_interval=2, evaluation_duration=7, evaluation_duration_unit='timesteps')",
            ".evaluation(evaluation_interval=2)",
            [
                "evaluation(evaluation_duration=7, evaluation_duration_unit='timesteps') was deleted: "
                "evaluation_num_episodes counts episodes (docs/from-rllib.md)"
            ],
        ),
        (
            ".evaluation(evaluation_duration='auto')",
            "",
            [
                "evaluation(evaluation_duration='auto') was deleted: evaluation_num_episodes counts episodes "
                "(docs/from-rllib.md)"
            ],
        ),
    ],
)
def test_a_setting_without_its_equal_is_rewritten_or_named(
    theirs: str, ours: str, lines: list[str], tmp_path: Path
) -> None:
    text, found = rewritten(tmp_path, f"{DQN}config = DQNConfig(){theirs}\n")
    assert text.splitlines()[-1] == f"config = DQNConfig.rllib_defaults(){ours}"
    assert found == [f"2: {line}" for line in lines]


@pytest.mark.parametrize(
    ("theirs", "ours", "lines"),
    [
        ("config.lr = 0.1", "config = config.training(lr=0.1)", []),
        ("config.num_env_runners = 2", "config = config.env_runners(num_env_runners=2)", []),
        (
            "config.train_batch_size_per_learner = 500; config.num_learners = 2",
            "config = config.training(train_batch_size=1000)\nconfig = config.learners(num_learners=2)",
            [],
        ),
        ("config.num_sgd_iter = 3", "config = config.training(num_epochs=3)", []),
        ("config.callbacks(Mine).training(lr=1.0)", "config = config.plugins(Mine).training(lr=1.0)", []),
        (
            "config.mine = 3",
            "config.mine = 3",
            ["config.mine = ...: a config is frozen: config = config.training(mine=...)"],
        ),
        (
            "config.build_learner(); config.update_from_dict({'lr': 0.1})",
            "config.build_learner()\nconfig.update_from_dict({'lr': 0.1})",
            ["a config has no .update_from_dict(...). Here: from_dict({...}) or the fluent methods"],
        ),
        (
            "config.training(**mine)",
            "config = config.training(**mine)",
            ["training(**mine): rename the settings in it yourself"],
        ),
    ],
)
def test_a_config_that_was_changed_in_place_is_a_new_one(
    theirs: str, ours: str, lines: list[str], tmp_path: Path
) -> None:
    program = f"{DQN}config = DQNConfig()\n" + theirs.replace("; ", "\n") + "\n"
    text, found = rewritten(tmp_path, program)
    assert text.splitlines()[2:] == ours.splitlines()
    assert found == [f"{2 + len(ours.splitlines())}: {line} (docs/from-rllib.md)" for line in lines]


def test_a_dict_that_is_also_named_config_has_the_methods_of_a_dict(tmp_path: Path) -> None:
    program = f"{DQN}config = DQNConfig()\nconfig.get('lr')\n"
    assert rewritten(tmp_path, program)[1] == ["3: a config has no .get(...) (docs/from-rllib.md)"]
    for elsewhere in ("def make(config):\n    return config.get('a')\n", "config = {}\nconfig.items()\n"):
        assert rewritten(tmp_path, f"{DQN}{elsewhere}config = DQNConfig()\n")[1] == []
        wrong = rewritten(tmp_path, f"{DQN}{elsewhere}config = DQNConfig()\nconfig.frozen()\n")[1]
        assert [each.partition(": ")[2][:30] for each in wrong] == ["a config has no .frozen(...) ("]


RESULTS = """
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.learner.learner import POLICY_LOSS_KEY
from ray.rllib.algorithms.ppo.ppo import LEARNER_RESULTS_KL_KEY as KL
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME

config = PPOConfig().environment('CartPole-v1').framework('torch').rl_module(model_config={'fcnet_hiddens': [4]})
config = config.training(train_batch_size=64, minibatch_size=32, num_epochs=1)
config = config.evaluation(evaluation_interval=1, evaluation_duration=2)
algo = config.build_algo()
result = algo.train()
steps = result["env_runners"]["num_env_steps_sampled_lifetime"]
assert steps == result.get(ENV_RUNNER_RESULTS, {}).get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0) == 64
evaluated = algo.evaluate()
mean = algo.evaluate()["env_runners"]["episode_return_mean"]
assert mean == evaluated["env_runners"]["episode_return_mean"] > 0
part = result["evaluation"]["env_runners"]
assert part["episode_return_mean"] == mean == part.get("episode_return_mean")
assert result.get("evaluation", {}).get("env_runners", {}).get("episode_return_mean") == mean
learned = result["learners"]["default_policy"]
assert {POLICY_LOSS_KEY, KL} <= set(learned)
algo.stop()
"""


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (
            'algo.train()["env_runners"]["agent_episode_returns_mean"]["a"]',
            'algo.train()["env_runners/agent_episode_returns_mean/a"]',
        ),
        (
            'algo.evaluate()["env_runners"]["agent_episode_returns_mean"]["a"]',
            'algo.evaluate()["agent_episode_returns_mean/a"]',
        ),
        (
            'algo.train()["evaluation"]["env_runners"]["module_episode_returns_mean"]["m"]',
            'algo.train()["evaluation/module_episode_returns_mean/m"]',
        ),
    ],
)
def test_results_of_agents_have_their_keys_here(theirs: str, ours: str, tmp_path: Path) -> None:
    text, lines = rewritten(tmp_path, f"{PPO}algo = PPOConfig().build_algo()\nprint({theirs})\n")
    assert text.splitlines()[-1] == f"print({ours})"
    assert lines == []


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ('f"{r[ENV][MEAN]:.1f}"', """f"{r['env_runners/episode_return_mean']:.1f}\""""),
        ("f'{r[ENV][MEAN]}'", """f'{r["env_runners/episode_return_mean"]}'"""),
        ("""f"{r['env_runners']['num_episodes']}\"""", """f"{r['env_runners/num_episodes']}\""""),
        ('f"{MEAN} {MEAN:>30}"', """f"episode_return_mean {'episode_return_mean':>30}\""""),
        ("""f"{'{'}{'x':>9}{'a'!r}\"""", """f"{'{'}{'x':>9}{'a'!r}\""""),
    ],
)
def test_keys_in_f_strings_have_the_other_quotes(theirs: str, ours: str, tmp_path: Path) -> None:
    names = "ENV_RUNNER_RESULTS as ENV, EPISODE_RETURN_MEAN as MEAN"
    imports = f"from ray.rllib.utils.metrics import {names}\n"
    text, lines = rewritten(tmp_path, f"{imports}print({theirs})\n")
    assert text.splitlines()[-1] == f"print({ours})"
    assert lines == []


PARENTHESES = """from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.utils.metrics import EPISODE_RETURN_MEAN
config = (
    PPOConfig()
    .environment("CartPole-v1"){last}
)
name = (  # kept
    EPISODE_RETURN_MEAN
)
algo = (
    config
    .build()
)
saved = (
    algo
    .save()
    .checkpoint.path
)
"""


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("\n    .api_stack(enable_rl_module_and_learner=True)", ""),
        ("\n    .debugging(log_level='ERROR')", ""),
        (".training(lr=0.1, model={})", ".training(lr=0.1).rl_module(model_config={})"),
        ("\n    .training(model={})", "\n    .rl_module(model_config={})"),
    ],
)
def test_parentheses_around_a_call_that_goes_stay(theirs: str, ours: str, tmp_path: Path) -> None:
    text, _ = rewritten(tmp_path, PARENTHESES.format(last=theirs))
    expected = PARENTHESES.format(last=ours).split("config = ", 1)[1]
    expected = expected.replace("PPOConfig()", "PPOConfig.rllib_defaults()").replace(
        "build()", "build_algo()"
    )
    expected = expected.replace(".save()\n    .checkpoint.path", '.save_to_path("checkpoint")')
    assert text.split("config = ", 1)[1] == expected.replace("EPISODE_RETURN_MEAN", '"episode_return_mean"')


@pytest.mark.parametrize("key", ["'my share'", "f'share'"])
def test_a_program_that_cannot_be_rewritten_stays_and_is_named(key: str, tmp_path: Path) -> None:
    program = f"{PPO}config = PPOConfig().training(learner_config_dict={{{key}: 0.5}})\n"
    text, (line,) = rewritten(tmp_path, program)
    assert text == program
    assert re.fullmatch(
        r"1: nothing was changed: rewritten, the program would be no Python \(.*\): rewrite it by hand .*",
        line,
    )


def test_parts_of_a_call_that_become_lines_of_their_own_stay_whole(tmp_path: Path) -> None:
    program = (
        "from ray.tune.registry import register_env, get_trainable_cls\n"
        "register_env('a', lambda cfg: make(cfg)\n    if cfg else None)\n"
        "config = get_trainable_cls(name or 'PPO').get_default_config()\n"
    )
    text, lines = rewritten(tmp_path, program)
    assert lines == []
    assert "return (make(cfg)\n    if cfg else None)\n" in text
    assert "get_algorithm((name or 'PPO').lower())" in text


def test_results_have_their_keys_here(tmp_path: Path) -> None:
    needs.backend("torch")
    text, lines = rewritten(tmp_path, RESULTS)
    assert lines == []
    run(tmp_path, text)


@pytest.mark.parametrize(
    ("read", "line"),
    [
        (
            "algo.train()['env_runners']['episode_len_max']",
            "env_runners: plugrad has no episode_len_max; there are agent_episode_returns_mean, episode_len_mean, "
            "episode_return_max, episode_return_mean, episode_return_min, module_episode_returns_mean, "
            "num_agent_steps_sampled, num_env_steps_sampled, num_episodes, num_module_steps_sampled",
        ),
        (
            "algo.evaluate()['env_runners']['num_env_steps_sampled_lifetime']",
            "evaluation: plugrad has no num_env_steps_sampled_lifetime; there are agent_episode_returns_mean, "
            "episode_len_mean, episode_return_max, episode_return_mean, episode_return_min, "
            "module_episode_returns_mean, num_episodes",
        ),
        (
            "found['env_runners']['episode_return_mean']",
            'found["env_runners"]: what evaluate() returns has its keys without "env_runners"',
        ),
    ],
)
def test_a_result_that_there_is_not_is_named(read: str, line: str, tmp_path: Path) -> None:
    program = f"{PPO}algo = PPOConfig().build_algo()\nfound = algo.train()\nfound = algo.evaluate()\nprint({read})\n"
    assert rewritten(tmp_path, program)[1] == [f"5: {line} (docs/from-rllib.md)"]


OWN = """
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPOConfig

config = PPOConfig().environment('CartPole-v1').framework('torch')
config = config.training({settings})
algo = Algorithm.from_checkpoint('saved')
"""


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("config.environment(Mine)", "env"),
        ("config.environment(env=lambda config: None)", "env"),
        ("config.rl_module(rl_module_spec=RLModuleSpec(module_class=Mine))", "rl_module_spec"),
        ("config.environment(ENV)", None),
    ],
)
def test_a_checkpoint_of_an_environment_or_a_module_of_ones_own_is_named(
    line: str, name: str | None, tmp_path: Path
) -> None:
    program = OWN.replace("config.training({settings})", line)
    expected = f"7: .from_checkpoint: this checkpoint has {name}, and no checkpoint imports code"
    assert any(each.startswith(expected) for each in rewritten(tmp_path, program)[1]) == (name is not None)


@pytest.mark.parametrize("settings", ["lr=0.1", "learner_config_dict={'share': 0.5}", "learner_class=Mine"])
def test_a_checkpoint_with_code_of_ones_own_is_named(settings: str, tmp_path: Path) -> None:
    name = settings.split("=")[0]
    expected = (
        f"7: .from_checkpoint: this checkpoint has {name}, and no checkpoint imports code: algorithm = "
        "config.build_algo(), then algorithm.restore_from_path(path) (docs/checkpoints.md)"
    )
    lines = rewritten(tmp_path, OWN.format(settings=settings))[1]
    assert lines == ([] if name == "lr" else [expected])


TF2 = """
from ray.rllib.algorithms.ppo.ppo import PPOConfig
from ray.rllib.algorithms.ppo.tf.ppo_tf_learner import PPOTfLearner
from ray.rllib.core.learner.learner import ENTROPY_KEY, POLICY_LOSS_KEY, VF_LOSS_KEY
from ray.rllib.core.learner.tf.tf_learner import TfLearner
from ray.rllib.core.rl_module.tf.tf_rl_module import TfRLModule
from ray.rllib.utils.framework import try_import_tf

_, tf, _ = try_import_tf()


class Doubled(PPOTfLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
        return tf.multiply(loss, 2.0)


config = (
    PPOConfig()
    .environment("CartPole-v1")
    .framework("tf2")
    .training(learner_class=Doubled, train_batch_size=64, minibatch_size=64, num_epochs=1)
    .rl_module(model_config={"fcnet_hiddens": [4]})
)
algo = config.build_algo()
learned = algo.train()["learners"]["default_policy"]
print(TfLearner.__name__, TfRLModule.__name__, {POLICY_LOSS_KEY, VF_LOSS_KEY, ENTROPY_KEY} <= set(learned))
algo.stop()
"""


def test_names_of_tensorflow_have_their_counterparts(tmp_path: Path) -> None:
    needs.backend("tf2")
    text, lines = rewritten(tmp_path, TF2)
    assert lines == []
    assert run(tmp_path, text)[-1] == "Tf2Learner Tf2RLModule True"


@pytest.mark.parametrize("text", ["def f(:\n", "print 'two'\n"])
def test_a_file_that_is_no_python_is_one_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "old.py"
    path.write_text(text)
    done = migrate(path)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"plugrad: error: {path}, line 1: this is no Python")


def test_a_program_that_begins_with_imports_begins_with_them_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(f"{PPO}config = PPOConfig()\n")
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
    code = "import plugrad_rllib.migrate.command, sys; assert 'plugrad_rllib.migrate.unpickle_child' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
