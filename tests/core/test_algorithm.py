"""An Algorithm, its training and its listeners, on the numpy backend: what is told when, and who may end a run."""

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import cloudpickle
import gymnasium as gym
import pytest
from click.testing import CliRunner
from gymnasium.envs.classic_control import CartPoleEnv
from learning import digest

from plugrad import hookimpl
from plugrad.algorithm import Algorithm
from plugrad.cli import main
from plugrad.errors import ConfigError, LearnerGroupDeadError, RestoreMismatchError
from plugrad.training import OnPolicyTraining
from plugrad_ppo import PPOConfig, PPOLearner

LISTENER = """
from pathlib import Path

from plugrad import hookimpl

HEARD = Path(__file__).with_suffix(".txt")


def note(line):
    HEARD.write_text((HEARD.read_text() if HEARD.exists() else "") + line + chr(10))


@hookimpl
def iteration_ended(algorithm, results):
    note(f"{algorithm.iteration}: {results['num_env_steps_sampled_lifetime']}")
    if algorithm.iteration == 3:
        algorithm.ask_to_stop("stopped by a listener")


@hookimpl
def checkpoint_saved(path):
    note(f"saved {Path(path).name}")


@hookimpl
def algorithm_stopped(algorithm):
    note(f"stopped at {algorithm.iteration}")
"""


PROGRAM = """
import sys
from pathlib import Path

import cloudpickle
from plugrad import hookimpl
from plugrad_ppo import PPOConfig


class Heard:
    @hookimpl
    def learner_built(self, learner):
        print("heard", learner.config.seed)


config = PPOConfig().environment("CartPole-v1").framework("numpy").debugging(seed=7).plugins(Heard)
config.build_learner()
Path(sys.argv[1]).write_bytes(cloudpickle.dumps(config))
"""


@pytest.fixture
def listener(tmp_path) -> Path:
    path = tmp_path / "listener.py"
    path.write_text(LISTENER)
    return path


def config() -> PPOConfig:
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .framework("numpy")
        .rl_module(model_config={"fcnet_hiddens": [1]})
        .env_runners(num_envs_per_env_runner=2)
        .training(train_batch_size=8, minibatch_size=None, num_epochs=1)
        .debugging(seed=0)
    )


def test_each_iteration_is_told_when_it_is_done_and_the_end_once(listener):
    algorithm = config().plugins(str(listener)).build_algo()
    for n in (1, 2, 3):
        assert algorithm.stop_reason is None
        assert algorithm.train()["training_iteration"] == n
    assert algorithm.stop_reason == "stopped by a listener"
    algorithm.stop()
    algorithm.stop()
    assert listener.with_suffix(".txt").read_text().splitlines() == ["1: 8", "2: 16", "3: 24", "stopped at 3"]


class Closing(CartPoleEnv):
    """An environment that writes down which of its kind are in use."""

    used = set()  # noqa: RUF012

    def reset(self, **settings):
        Closing.used.add(id(self))
        return super().reset(**settings)

    def close(self):
        Closing.used.discard(id(self))


class Fails:
    """A listener that fails at the end."""

    @hookimpl
    def algorithm_stopped(self, algorithm):
        raise RuntimeError(f"no end {algorithm.config.seed}")


def test_everything_is_closed_where_a_listener_fails_at_the_end():
    algorithm = (
        config().environment(Closing).evaluation(evaluation_num_episodes=1).plugins(Fails).build_algo()
    )
    algorithm.train()
    algorithm.evaluate()
    assert len(Closing.used) > 2
    with pytest.raises(RuntimeError, match="no end 0"):
        algorithm.stop()
    assert not Closing.used
    with pytest.raises(LearnerGroupDeadError, match="was shut down"):
        algorithm.learner_group.get_state()
    algorithm.stop()


class StopsAtOnce:
    """A listener that is named by its class."""

    @hookimpl
    def iteration_ended(self, algorithm):
        algorithm.ask_to_stop("at once")


def test_a_listener_may_be_named_by_its_class():
    settings = config().plugins(StopsAtOnce)
    assert settings.to_dict() == config().plugins(f"{__name__}:StopsAtOnce").to_dict()
    algorithm = PPOConfig.from_toml(settings.to_toml()).build_algo()
    algorithm.train()
    assert algorithm.stop_reason == "at once"
    algorithm.stop()
    with pytest.raises(ConfigError, match=r"plugin_names\[0\] cannot be written: .* move it to a module"):
        config().plugins(type("Unnamed", (), {})).to_toml()


def test_a_listener_of_the_program_itself_goes_to_other_processes(tmp_path, capsys):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, tmp_path / "program.py", tmp_path / "config"]
    here = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert here.stdout == "heard 7\n", here.stderr
    cloudpickle.loads((tmp_path / "config").read_bytes()).build_learner()
    assert capsys.readouterr().out == "heard 7\n"


def test_plugrad_train_ends_when_a_listener_asks_for_it(listener, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(config().to_toml())
    run = tmp_path / "run"
    arguments = ["train", "--config", path, "--plugin", listener, "--out", run, "--stop-timesteps", 800]
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    assert "stopped by a listener" in result.stdout.splitlines()
    assert json.loads((run / "summary.json").read_text())["timesteps"] == 24
    heard = listener.with_suffix(".txt").read_text().splitlines()
    assert heard == ["saved last", "1: 8", "2: 16", "3: 24", "saved last", "stopped at 3"]


def test_a_training_that_keeps_nothing_refuses_what_another_kept():
    training = OnPolicyTraining(config().build_algo())
    training.set_state(training.get_state())
    with pytest.raises(RestoreMismatchError, match="keeps nothing between iterations; unexpected: replay"):
        training.set_state({"replay": {}})


@pytest.mark.parametrize(
    ("settings", "num_envs", "fragment", "expected", "words"),
    [
        (
            100,
            8,
            None,
            104,
            "train_batch_size=100, and an update is on 104 environment steps: 13 in each of 8",
        ),
        (96, 8, None, 96, None),
        (3, 8, None, 8, "an update is on 8 environment steps: 1 in each of 8"),
        (96, 8, 5, 120, "on 120 environment steps: 3 times 5 in each of 8 .*rollout_fragment_length"),
        (96, 8, 6, 96, None),
        (96, 8, 20, 160, "on 160 environment steps: 20 in each of 8 .*rollout_fragment_length"),
    ],
)
def test_an_update_is_on_at_least_train_batch_size_steps_and_other_numbers_are_said_once(
    settings, num_envs, fragment, expected, words, caplog
):
    algorithm = (
        config()
        .training(train_batch_size=settings)
        .env_runners(num_envs_per_env_runner=num_envs, rollout_fragment_length=fragment)
        .build_algo()
    )
    for _ in range(2):
        assert algorithm.train()["env_runners/num_env_steps_sampled"] == expected
    said = [record.getMessage() for record in caplog.records if "train_batch_size" in record.getMessage()]
    assert len(said) == (words is not None)
    assert words is None or re.search(words, said[0])


def test_an_update_that_is_not_waited_for_returns_the_results_of_earlier_ones():
    algorithm = config().build_algo()
    assert algorithm.update(episodes=algorithm.sample(), async_update=True) == []
    (first,) = algorithm.update(episodes=algorithm.sample(), async_update=True)
    assert first["default_policy"]["weights_seq_no"] == 1
    waited_for = algorithm.update(episodes=algorithm.sample())
    assert waited_for["default_policy"]["weights_seq_no"] == 3


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("learn", r"train\(\) runs one iteration"),
        ("predict", r"get_policy\(\).predict\(observation\)"),
        ("save", r"save_to_path\(path\)"),
        ("get_module", r"get_policy\(module_id\) acts; learner_group.foreach_learner"),
        ("compute_single_action", r"get_policy\(\).predict\(observation, deterministic=False\)"),
    ],
)
def test_a_name_of_another_library_says_what_to_use(name, instead):
    algorithm = PPOConfig().environment("CartPole-v1").framework("numpy").build_algo()
    with pytest.raises(
        AttributeError, match=rf"^'Algorithm' object has no attribute '{name}'. Here: {instead}"
    ):
        getattr(algorithm, name)
    with pytest.raises(AttributeError, match=r"^'Algorithm' object has no attribute 'trian'$"):
        algorithm.trian  # noqa: B018
    algorithm.stop()


def test_what_cannot_be_saved_is_a_warning_when_it_is_built(tmp_path):
    config = (
        PPOConfig()
        .framework("numpy")
        .training(train_batch_size=16, minibatch_size=None)
        .rl_module(model_config={"fcnet_hiddens": [2]})
    )
    named = config.environment("CartPole-v1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        named.build_algo().stop()

    class Local(gym.Wrapper):
        """Nothing more, and no name that another process can import."""

    with pytest.warns(
        UserWarning, match=r"^env_wrappers\[0\] cannot be written: .*save_to_path raises"
    ) as said:
        algorithm = named.env_runners(env_wrappers=[Local]).build_algo()
    assert [each.filename for each in said] == [__file__]
    algorithm.train()
    with pytest.raises(ConfigError, match=r"env_wrappers\[0\] cannot be written"):
        algorithm.save_to_path(tmp_path / "saved")
    algorithm.stop()


def test_a_learner_of_a_class_without_a_name_is_built_by_that_class(tmp_path):
    class Mine(PPOLearner):
        """Defined in a function."""

    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .framework("numpy")
        .rl_module(model_config={"fcnet_hiddens": [2]})
    )
    learner = config.learners(learner_class=Mine).build_learner()
    learner.save_to_path(tmp_path)
    again = Mine.from_checkpoint(tmp_path)
    assert type(again) is again.config.learner_class is Mine
    assert digest(again.get_state()) == digest(learner.get_state())


def test_functions_without_a_name_are_saved_as_what_they_are_called_and_given_anew(tmp_path):
    """Such as lambdas and classes of a function: a checkpoint imports no code, so it needs none of their names."""
    config = (
        PPOConfig()
        .environment(lambda: gym.make("CartPole-v1"))
        .framework("numpy")
        .learners(learner_connector=lambda observation_space, action_space: [])
        .training(train_batch_size=16, minibatch_size=None, num_epochs=1)
        .rl_module(model_config={"fcnet_hiddens": [2]})
        .debugging(seed=1)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        algorithm = config.build_algo()
    algorithm.train()
    path = algorithm.save_to_path(tmp_path / "saved")
    with pytest.raises(ConfigError, match=r"env of this checkpoint is .*<lambda>.*: give env= to Algorithm"):
        Algorithm.from_checkpoint(path)
    again = config.build_algo()
    again.restore_from_path(path)
    one, other = (each.train()["learners"]["default_policy"] for each in (algorithm, again))
    assert one == other
    algorithm.stop(), again.stop()
    with pytest.raises(
        ConfigError, match="env cannot be written"
    ):  # whoever reads a document has nothing to give
        config.to_json()
