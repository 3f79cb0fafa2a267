"""A kind of space of a user's own is one row of the table: it trains, is saved, restored, recorded, and acts."""

import ast
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import own_spaces
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Space
from own_spaces import ORIENTATION, SPACES, WORD, Compass, Orientation, Word
from tiny_runs import TINY, plugrad, start

from plugrad import DEFAULT_MODULE_ID, AlgorithmConfig, load_policy
from plugrad.algorithm import Algorithm
from plugrad.errors import BatchError, ConfigError, EnvContractError, SpaceMismatchError
from plugrad.offline import load_episodes
from plugrad.spaces import register
from plugrad_bc import BCConfig
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig, TD3Config

CORE = Path(__file__).parents[2] / "core/plugrad"
PAIRS = [("numbers", "numbers"), ("texts", "texts"), ("dict", "dict")]


def ppo(observed: str, acted: str, **settings: Any) -> AlgorithmConfig:
    config = PPOConfig().framework("numpy").rl_module(model_config={"fcnet_hiddens": [2]}).debugging(seed=0)
    config = config.training(train_batch_size=8, minibatch_size=None, num_epochs=1)
    config = config.env_runners(num_envs_per_env_runner=2)
    return config.environment(Compass, env_config={"observed": observed, "acted": acted, **settings})


def trained(config: AlgorithmConfig) -> tuple[dict[str, Any], float]:
    """Weights after two iterations, and what the episodes returned."""
    algorithm = config.build_algo()
    try:
        results = [algorithm.train() for _ in range(2)]
        weights = algorithm.learner_group.get_weights()[DEFAULT_MODULE_ID]
        return dict(weights), results[-1]["env_runners"]["episode_return_mean"]
    finally:
        algorithm.stop()


@pytest.mark.parametrize(("observed", "acted"), PAIRS)
@pytest.mark.parametrize("settings", [{}, {"normalize_observations": True}, {"frame_stack": 2}], ids=str)
def test_training_gives_the_weights_of_an_environment_that_makes_the_arrays_itself(
    observed: str, acted: str, settings: dict[str, Any]
) -> None:
    own = ppo(observed, acted).env_runners(**settings)
    by_hand = ppo(observed, acted, by_hand=True).env_runners(**settings)
    (weights, returned), (expected, also) = trained(own), trained(by_hand)
    assert returned == pytest.approx(also)
    for name, values in expected.items():
        np.testing.assert_array_equal(values.ravel(), weights[name].ravel())


@pytest.mark.parametrize(("observed", "acted"), PAIRS)
def test_a_checkpoint_and_a_policy_file_act_as_the_algorithm_does(
    observed: str, acted: str, tmp_path: Path
) -> None:
    algorithm = ppo(observed, acted).build_algo()
    algorithm.train()
    path, file = algorithm.save_to_path(tmp_path / "checkpoint"), tmp_path / "policy"
    policy = algorithm.get_policy()
    policy.save(file)
    SPACES[observed].seed(3)
    observations = [SPACES[observed].sample() for _ in range(5)]
    actions = [policy.predict(each)[0] for each in observations]
    algorithm.stop()
    restored = Algorithm.from_checkpoint(path, env=Compass)
    for other in (restored.get_policy(), load_policy(file)):
        assert other.action_space == SPACES[acted]
        for observation, action in zip(observations, actions, strict=True):
            found = other.predict(observation)[0]
            assert SPACES[acted].contains(found)
            assert found == action
    assert restored.evaluate(2, seed=1)["episode_len_mean"] == own_spaces.LENGTH
    restored.train()
    restored.stop()


def test_many_values_are_predicted_at_once() -> None:
    algorithm = ppo("dict", "texts").build_algo()
    policy = algorithm.get_policy()
    seen = [SPACES["dict"].sample() for _ in range(3)]
    batch = {
        "heading": np.array([each["heading"] for each in seen]),
        "word": [each["word"] for each in seen],
        "speed": np.stack([each["speed"] for each in seen]),
    }
    assert policy.predict(batch)[0] == [policy.predict(each)[0] for each in seen]
    algorithm.stop()


def test_recorded_values_train_another_algorithm(tmp_path: Path) -> None:
    run = tmp_path / "run"
    plugrad(
        "train",
        "ppo",
        "--env=own_spaces:Compass",
        *TINY,
        "--quiet",
        "--out",
        run,
        "--stop-timesteps=8",
        code=0,
    )
    done = plugrad("eval", run, "--trust", "--json", "--episodes=2", "--seed=1", code=0)
    assert json.loads(done.output)["episode_len_mean"] == own_spaces.LENGTH
    plugrad("train", "--resume", run, "--trust", "--quiet", "--stop-timesteps=16", code=0)
    plugrad("record", run, "--trust", "--episodes=2", "-o", tmp_path / "recorded", code=0)
    data = load_episodes(str(tmp_path / "recorded"))
    assert data.action_space == SPACES["dict"]
    assert data.episodes[0].actions.shape == (own_spaces.LENGTH, 4)
    config = BCConfig().framework("numpy").rl_module(model_config={"fcnet_hiddens": [2]})
    config = config.offline_data(input_=str(tmp_path / "recorded")).environment(Compass)
    algorithm = config.training(train_batch_size=8, minibatch_size=None).build_algo()
    algorithm.train()
    algorithm.stop()


@pytest.mark.parametrize(
    ("config", "acted", "noise"),
    [
        (DQNConfig(), "texts", None),
        (SACConfig(), "texts", None),
        (SACConfig(), "numbers", (2,)),
        (TD3Config(), "numbers", (2,)),
    ],
    ids=lambda each: getattr(each, "algorithm_name", str(each)),
)
def test_algorithms_of_one_kind_of_actions_take_arrays_of_that_kind(
    config: Any, acted: str, noise: tuple[int, ...] | None
) -> None:
    config = config.framework("numpy").rl_module(model_config={"fcnet_hiddens": [1]}).debugging(seed=0)
    config = config.environment(Compass, env_config={"observed": "texts", "acted": acted})
    algorithm = config.build_algo()
    assert algorithm.evaluate(1, seed=0)["episode_len_mean"] == own_spaces.LENGTH
    algorithm.stop()
    found = config.build_learner().get_noise_columns(DEFAULT_MODULE_ID)
    assert set(found.values()) == (set() if noise is None else {noise})


def test_worker_processes_step_environments_with_values() -> None:
    own = ppo("texts", "texts")
    spread = own.env_runners(vectorization_mode="async")
    (weights, returned), (expected, also) = trained(spread), trained(own)
    assert returned == also
    for name, values in expected.items():
        np.testing.assert_array_equal(values, weights[name])


def test_agents_see_and_act_values() -> None:
    config = ppo("texts", "dict").environment(Pair).multi_agent(policies=["default_policy"])
    algorithm = config.build_algo()
    assert algorithm.train()["env_runners"]["episode_return_mean"] > 0
    algorithm.stop()


class Pair:
    """Two agents, each in a `Compass` of its own, with RLlib's `MultiAgentEnv` interface."""

    possible_agents = ("a", "b")

    def __init__(self, **settings: Any) -> None:
        self.envs = {agent: Compass(**settings) for agent in self.possible_agents}
        self.observation_spaces = {agent: each.observation_space for agent, each in self.envs.items()}
        self.action_spaces = {agent: each.action_space for agent, each in self.envs.items()}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        return {agent: each.reset(seed=seed)[0] for agent, each in self.envs.items()}, {}

    def step(self, actions: Any) -> tuple[dict[str, Any], ...]:
        answers = {agent: self.envs[agent].step(action) for agent, action in actions.items()}
        seen, rewards, ended, cut = ({agent: each[n] for agent, each in answers.items()} for n in range(4))
        return seen, rewards, {**ended, "__all__": all(ended.values())}, {**cut, "__all__": False}, {}


def test_random_actions_are_values() -> None:
    algorithm = ppo("numbers", "dict").build_algo()
    assert len(algorithm.env_runner.sample(own_spaces.LENGTH, random_actions=True)[0]) == own_spaces.LENGTH
    algorithm.stop()


def test_an_environment_of_another_space_of_the_kind_is_refused(tmp_path: Path) -> None:
    algorithm = ppo("numbers", "texts").build_algo()
    path = algorithm.save_to_path(tmp_path / "checkpoint")
    algorithm.stop()

    class Other(Compass):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.action_space = Word("go", "stay", "stop")

    with pytest.raises(
        SpaceMismatchError, match=r"Word\(words=\['go', 'stay', 'wait'\]\) asked, Word\(words=\['go'"
    ):
        Algorithm.from_checkpoint(path, env=Other)


def test_a_value_that_is_none_is_refused_with_its_path() -> None:
    class Wrong(Compass):
        def _observation(self) -> Any:
            return {**super()._observation(), "word": "never"}

    with pytest.raises(EnvContractError, match=r"\['word'\].*'never'|'never'.*\['word'\]"):
        ppo("dict", "texts").environment(Wrong).build_algo().train()
    algorithm = ppo("dict", "texts").build_algo()
    with pytest.raises(BatchError, match=r"\['word'\]"):
        algorithm.get_policy().predict({"heading": 15.0, "word": "never", "speed": np.zeros(1, np.float32)})
    algorithm.stop()


def test_a_row_must_be_of_a_class_of_spaces_with_a_name_of_its_own() -> None:
    row: dict[str, Any] = {
        "as_space": lambda space: Dict({"a": Discrete(2)}),
        "to_array": lambda space, value: value,
        "from_array": lambda space, array: array,
        "arguments": lambda space: {},
        "make": lambda data: Space(),
    }
    with pytest.raises(ConfigError, match=r"no class derived from gymnasium\.Space"):
        register(int, **row)
    with pytest.raises(ConfigError, match="rename the class"):
        register(type("Box", (Space,), {}), **row)


def test_an_unknown_kind_in_a_file_is_refused_and_says_what_is_known() -> None:
    data = ppo("numbers", "texts").environment(action_space=WORD, observation_space=ORIENTATION).to_dict()
    assert data["action_space"] == {"__space__": "Word", "words": ["go", "stay", "wait"]}
    assert AlgorithmConfig.from_dict(data).action_space == WORD
    with pytest.raises(ConfigError, match=r"unknown space 'Wort'.*Word"):
        AlgorithmConfig.from_dict({**data, "action_space": {"__space__": "Wort"}})


def test_a_kind_of_an_installed_distribution_is_imported_where_a_file_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "dials-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dials\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[plugrad.spaces]\nDial = dials\nBroken = no_dials\n")
    (tmp_path / "dials.py").write_text(
        "from own_spaces import Orientation, arrow, degrees\nfrom gymnasium.spaces import Box\n"
        "from plugrad.spaces import register\nclass Dial(Orientation): pass\n"
        "register(Dial, as_space=lambda space: Box(-1, 1, (2,)), to_array=arrow, from_array=degrees,\n"
        "    arguments=lambda space: {'step': space.step}, make=lambda data: Dial(data['step']))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    data = ppo("numbers", "texts").to_dict()
    config = AlgorithmConfig.from_dict({**data, "action_space": {"__space__": "Dial", "step": 30}})
    assert type(config.action_space).__name__ == "Dial"
    with pytest.raises(ConfigError, match="no_dials fails to load, which has the space 'Broken'"):
        AlgorithmConfig.from_dict({**data, "action_space": {"__space__": "Broken"}})


@pytest.mark.parametrize(
    ("opened", "typed"),
    [("", ["--trust"]), ("", ["--env", "own_spaces:Compass"]), ("checkpoints/last", ["--trust"])],
)
def test_a_command_of_another_process_finds_the_kinds_that_the_environment_registers(
    opened: str, typed: list[str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    plugrad(
        "train",
        "ppo",
        "--env=own_spaces:Compass",
        *TINY,
        "--quiet",
        "--out",
        run,
        "--stop-timesteps=8",
        code=0,
    )
    process = start("eval", run / opened, *typed, "--json", "--episodes=1", env=with_tests_on_the_path())
    output, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert json.loads(output)["episode_len_mean"] == own_spaces.LENGTH


def with_tests_on_the_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


NAMED = {"Discrete", "MultiDiscrete", "MultiBinary", "Text", "Dict", "Tuple", "OneOf", "Graph"}
"""Kinds of spaces. A Box is also what rows are."""
MAY_NAME = {
    "spaces/kinds.py": "the table",
    "cli/algorithms.py": "examples: which spaces an algorithm takes is tried out",
    "testing/tiny_learners.py": "the spaces of a task",
    "testing/tiny_task.py": "the spaces of a task",
}


def test_kinds_of_spaces_are_named_in_the_table() -> None:
    found = set()
    for path in CORE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "gymnasium.spaces":
                names = {each.name for each in node.names}
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("spaces"):
                names = {node.attr}
            else:
                continue
            if names & NAMED:
                found.add(str(path.relative_to(CORE)))
    assert found == {*MAY_NAME}


def test_the_kinds_of_these_tests_are_no_kinds_of_gymnasium() -> None:
    assert not issubclass(Orientation, Box | Discrete)
    assert WORD.shape is None
