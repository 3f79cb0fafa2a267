"""A checkpoint leads to its backend and its algorithm by short name, and to no other code, whatever its config says."""

import os
import platform
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import malicious_checkpoints
import numpy as np
import pytest
from click.testing import CliRunner
from learning import ppo_batch, ppo_config
from two_agents import AlikeLamps

from plugrad import Learner, LearnerGroup, RandomRLModule, RLModuleSpec, load_policy
from plugrad.algorithm import Algorithm
from plugrad.checkpoint import load_checkpoint, save_checkpoint
from plugrad.cli import main
from plugrad.cli.run_directory import RunDirectory
from plugrad.cli.trained import open_trained
from plugrad.config.fields import field
from plugrad.errors import CheckpointError, ConfigError, PlugradError
from plugrad_ppo import PPOConfig

CANARY = "from pathlib import Path\nPath({marker!r}).touch()\ndef call(*args, **kwargs): Path({marker!r}).touch()\n"


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that exists as soon as the module `canary` was imported or called."""
    (tmp_path / "canary.py").write_text(CANARY.format(marker=str(tmp_path / "sang")))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "sang"
    sys.modules.pop("canary", None)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint of a learner and one of an algorithm."""
    folder = tmp_path_factory.mktemp("code")
    learner = ppo_config(hiddens=(2,)).build_learner()
    learner.update(ppo_batch())
    learner.save_to_path(folder / "learner")
    config = ppo_config(hiddens=(2,)).environment("CartPole-v1", observation_space=None, action_space=None)
    algorithm = config.training(train_batch_size=16).env_runners(num_envs_per_env_runner=2).build_algo()
    algorithm.save_to_path(folder / "algorithm")
    algorithm.stop()
    return folder


def spoiled(saved: Path, kind: str, tmp_path: Path, **settings: Any) -> Path:
    """A copy of a checkpoint with other settings in it, sealed."""
    save = tmp_path / kind / "save-1"
    save.mkdir(parents=True)
    for file in (saved / kind / "save-1").iterdir():
        (save / file.name).write_bytes(file.read_bytes())
    malicious_checkpoints.seal(save, lambda fields: fields["metadata"]["config"].update(settings))
    return save.parent


SPEC = {"__spec__": "RLModuleSpec", "module_class": "canary:call"}
CODE = {
    "learner_connector": "canary:call",
    "rl_module_spec": SPEC,
}
FOR_A_GROUP = CODE | {"learner_class": "canary:call"}
FOR_AN_ALGORITHM = FOR_A_GROUP | {"env": "canary:call"}


def refused(open_: Callable[[Path], object], path: Path, words: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"{words} of this checkpoint is canary:call, and a checkpoint imports no code"
    ):
        open_(path)


@pytest.mark.parametrize("name", CODE)
def test_a_learner_imports_nothing(saved: Path, tmp_path: Path, marker: Path, name: str) -> None:
    path = spoiled(saved, "learner", tmp_path, **{name: CODE[name]})
    refused(Learner.from_checkpoint, path, "module '.*'" if name == "rl_module_spec" else name)
    assert not marker.exists()


@pytest.mark.parametrize("name", FOR_A_GROUP)
def test_a_group_imports_nothing(saved: Path, tmp_path: Path, marker: Path, name: str) -> None:
    path = spoiled(saved, "learner", tmp_path, **{name: FOR_A_GROUP[name]})
    refused(LearnerGroup.from_checkpoint, path, "module '.*'" if name == "rl_module_spec" else name)
    assert not marker.exists()


@pytest.mark.parametrize("name", FOR_AN_ALGORITHM)
def test_an_algorithm_imports_nothing(saved: Path, tmp_path: Path, marker: Path, name: str) -> None:
    path = spoiled(saved, "algorithm", tmp_path, **{name: FOR_AN_ALGORITHM[name]})
    refused(Algorithm.from_checkpoint, path, "module '.*'" if name == "rl_module_spec" else name)
    result = CliRunner().invoke(main, ["eval", str(path)])
    assert result.exit_code == 2
    assert "a checkpoint imports no code" in result.output
    assert not marker.exists()


def test_opponents_that_act_at_random_are_the_cores_own(tmp_path: Path) -> None:
    opponents = {"learner": None, "random": RLModuleSpec(module_class=RandomRLModule)}
    config = ppo_config(hiddens=(2,)).environment(AlikeLamps, observation_space=None, action_space=None)
    config = config.multi_agent(
        policies=opponents,
        agent_to_module={"guesser": "learner", "mover": "random"},
        policies_to_train=["learner"],
    )
    algorithm = config.training(train_batch_size=16).env_runners(num_envs_per_env_runner=2).build_algo()
    algorithm.save_to_path(tmp_path)
    observation = algorithm.config.observation_space.sample()
    action = algorithm.get_policy("learner").predict(observation)[0]
    algorithm.stop()
    again = Algorithm.from_checkpoint(tmp_path, env=AlikeLamps)
    assert isinstance(again.learner_group.acting_learner.learner.module["random"], RandomRLModule)
    again.stop()
    assert load_policy(tmp_path, module_id="learner").predict(observation)[0] == action


def test_a_function_with_arguments_is_not_called(saved: Path, tmp_path: Path, marker: Path) -> None:
    for env in ("os:system", "__main__:os.system", "canary:No-v0"):
        path = spoiled(
            saved, "algorithm", tmp_path / env[:3], env=env, env_config={"command": f"touch {marker}"}
        )
        with pytest.raises(ConfigError, match="a checkpoint imports no code: give env= to Algorithm"):
            Algorithm.from_checkpoint(path)
    path = spoiled(saved, "learner", tmp_path, env="canary:call", observation_space=None, action_space=None)
    with pytest.raises(ConfigError, match="space"):
        LearnerGroup.from_checkpoint(path)
    assert not marker.exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": "canary:call"},
        {"algorithm": "../canary"},
        {"backend": "canary"},
        {"backend": "canary:call"},
    ],
)
def test_backends_and_algorithms_are_those_that_are_installed(
    saved: Path, tmp_path: Path, marker: Path, settings: dict[str, str]
) -> None:
    with pytest.raises(PlugradError, match="canary"):
        Learner.from_checkpoint(spoiled(saved, "learner", tmp_path, **settings))
    assert not marker.exists()


def test_listeners_of_a_checkpoint_are_not_loaded(saved: Path, tmp_path: Path, marker: Path) -> None:
    path = spoiled(saved, "learner", tmp_path, plugin_names=[str(tmp_path / "canary.py")])
    Learner.from_checkpoint(path)
    assert not marker.exists()


def test_a_checkpoint_says_nothing_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "correct-horse-battery")
    ppo_config(hiddens=(2,)).build_learner().save_to_path(tmp_path / "c")
    text = b"".join(file.read_bytes() for file in (tmp_path / "c" / "save-1").glob("*.json")).decode()
    for secret in ("correct-horse-battery", platform.node(), os.getcwd(), str(Path.home()), str(tmp_path)):
        assert f'"{secret}' not in text


class Corridor(gym.Env[Any, Any]):
    """An environment that is no Gymnasium id."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, **_: Any) -> Any:
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(3, np.float32), 1.0, True, False, {}


def test_who_brings_the_environment_opens_the_checkpoint(tmp_path: Path) -> None:
    config = ppo_config(hiddens=(2,)).environment(Corridor, observation_space=None, action_space=None)
    config = config.training(train_batch_size=16).env_runners(num_envs_per_env_runner=2)
    run = RunDirectory.create(tmp_path / "run", config)
    algorithm = config.build_algo()
    algorithm.train()
    algorithm.save_to_path(run.last)
    with pytest.raises(ConfigError, match=r"env of this checkpoint is .*:Corridor, .*: give env= to"):
        Algorithm.from_checkpoint(run.last)
    again = Algorithm.from_checkpoint(run.last, env=Corridor)
    judged, path = open_trained(run.path, None)  # the settings of one's own run may name one's own code
    assert path == run.last
    assert algorithm.iteration == again.iteration == judged.iteration == 1
    for each in (algorithm, again, judged):
        each.stop()


@dataclass(frozen=True, kw_only=True)
class Own(PPOConfig):
    """A config with a setting of one's own."""

    l2: float = field(0.001)


def test_a_run_whose_config_class_has_settings_of_its_own_acts_and_goes_on_from_that_class(
    tmp_path: Path,
) -> None:
    config = Own(**{name: getattr(ppo_config(hiddens=(2,)), name) for name in PPOConfig.fields()})
    config = config.environment("CartPole-v1", observation_space=None, action_space=None)
    config = config.training(l2=0.5, train_batch_size=16).env_runners(num_envs_per_env_runner=2)
    config = config.rl_module(
        algorithm_config_overrides_per_module={"default_policy": {"l2": 0.7, "lr": 0.1}}
    )
    algorithm = config.build_algo()
    algorithm.train()
    observation = np.ones(4, np.float32)
    policy = algorithm.get_policy()
    expected, paths = policy.predict(observation)[0], [algorithm.save_to_path(tmp_path / "run")]
    paths.append(policy.save(tmp_path / "file"))
    for path in paths:
        assert load_policy(path).predict(observation)[0] == expected
    words = r"unknown setting 'l2': PPOConfig.*: build from your config and restore_from_path"
    for open_ in (Algorithm.from_checkpoint, Learner.from_checkpoint, LearnerGroup.from_checkpoint):
        with pytest.raises(ConfigError, match=words):
            open_(paths[0])
    again = config.training(l2=0.1).build_algo()
    again.restore_from_path(paths[0])
    assert (again.config.l2, again.iteration) == (0.5, 1)
    for each in (algorithm, again):
        each.stop()


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"kind": "learner"},
        {"kind": "learner", "config": 3},
        {"kind": "algorithm"},
        {"kind": ["x"]},
    ],
)
def test_what_is_no_checkpoint_of_a_learner_is_named(tmp_path: Path, metadata: dict[str, Any]) -> None:
    save_checkpoint(tmp_path / "c", {"x": 1}, metadata=metadata)
    for open_ in (Learner.from_checkpoint, LearnerGroup.from_checkpoint, Algorithm.from_checkpoint):
        with pytest.raises(CheckpointError, match=str(tmp_path / "c")):
            open_(tmp_path / "c")


WRITTEN = [None, -1, 3, 1e30, float("nan"), True, "", "x", "canary:call", [], [1, 2], [[0, 1]], {}, {"a": 1}]
WRITTEN += [{"__space__": "Box"}, {"__space__": [1]}, {"__spec__": "RLModuleSpec"}]


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with each of its keys, inner ones too."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield tree, key
        yield from places(tree[key])


@pytest.mark.counts
@pytest.mark.parametrize("kind", ["learner", "algorithm"])
def test_whatever_a_sealed_checkpoint_says_it_opens_or_is_refused(
    saved: Path, tmp_path: Path, marker: Path, kind: str
) -> None:
    rng, opened, refused = random.Random(3), 0, 0
    for number in range(100):
        found = load_checkpoint(saved / kind)
        inner, key = rng.choice(list(places(found.metadata if number % 2 else found.state)))
        inner[key] = rng.choice(WRITTEN)
        path = save_checkpoint(tmp_path / f"{number}", found.state, metadata=found.metadata)
        try:
            if kind == "algorithm":
                Algorithm.from_checkpoint(path).stop()
            else:
                Learner.from_checkpoint(path)
            opened += 1
        except PlugradError:
            refused += 1
    assert not marker.exists()
    assert opened > 0
    assert refused > 40
