"""Off-policy training and its settings, which algorithms share: shown with DQN."""

from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from learning import OBSERVATIONS, TWO_ACTIONS, digest, largest_difference
from statistics_models import CLASSES, statistics

from plugrad import (
    ALL_MODULES,
    DEFAULT_MODULE_ID,
    AlgorithmConfig,
    Columns,
    Learner,
    OffPolicyConfig,
    RLModuleSpec,
)
from plugrad.algorithm import Algorithm
from plugrad.checkpoint import list_saves, load_checkpoint, save_checkpoint
from plugrad.errors import ConfigError, RestoreMismatchError
from plugrad.replay import storage
from plugrad.training import OffPolicyTraining
from plugrad_dqn import DQNConfig

P = DEFAULT_MODULE_ID


def config(**training) -> DQNConfig:
    """On CartPole, 4 steps of 2 environments in an iteration."""
    settings = {"minibatch_size": 8, "train_batch_size": 16, "num_steps_sampled_before_learning_starts": 8}
    return (
        DQNConfig()
        .environment("CartPole-v1")
        .framework("numpy")
        .rl_module(model_config={"fcnet_hiddens": [1]})
        .env_runners(num_envs_per_env_runner=2, rollout_fragment_length=4)
        .training(**{**settings, **training})
        .debugging(seed=0)
    )


def actions(algorithm) -> np.ndarray:
    """Those in the replay buffer, in the order of their steps."""
    (each,) = algorithm._training._buffers.values()
    return each._storage.columns["actions"][: len(each)]


# --- sampling ---


def test_the_first_steps_of_a_run_are_random_and_no_later_ones():
    settings = {"epsilon": 0.0, "num_steps_sampled_before_learning_starts": 1000}
    algorithm = config(random_steps=40, **settings).build_algo()
    for _ in range(10):
        algorithm.train()
    (buffer,) = algorithm._training._buffers.values()
    greedy = algorithm._learner.compute_actions(buffer._storage.columns["obs"][:80], explore=False)["actions"]
    is_greedy = actions(algorithm) == greedy
    assert 10 < is_greedy[:40].sum() < 30
    assert is_greedy[40:].all()


def test_an_iteration_has_as_many_training_steps_as_its_environment_steps_need():
    single, several = (
        each.build_algo() for each in (config(), config().reporting(min_sample_timesteps_per_iteration=20))
    )
    one_by_one = [single.train() for _ in range(6)]
    at_once = [several.train() for _ in range(2)]
    assert [each["num_env_steps_sampled_lifetime"] for each in at_once] == [24, 48]
    assert largest_difference(single.learner_group.get_weights(), several.learner_group.get_weights()) == 0.0
    loss = f"learners/{P}/total_loss"
    assert [each[loss] for each in at_once] == [one_by_one[2][loss], one_by_one[5][loss]]


def test_a_resumed_run_has_no_second_random_start(tmp_path):
    greedy = {"epsilon": 0.0, "num_steps_sampled_before_learning_starts": 1000, "random_steps": 40}
    runs = [config(**greedy).build_algo() for _ in range(2)]
    for _ in range(3):
        runs[0].train()
    runs[0].save_to_path(tmp_path)
    runs[1].restore_from_path(tmp_path)
    for algorithm in runs:
        for _ in range(5):
            algorithm.train()
    np.testing.assert_array_equal(*map(actions, runs))


def test_nothing_to_remember_yet_is_nothing_to_learn_from():
    algorithm = config(n_step=6, num_steps_sampled_before_learning_starts=0).build_algo()
    assert f"learners/{P}/total_loss" not in algorithm.train()
    assert f"learners/{P}/total_loss" in algorithm.train()


@pytest.mark.parametrize(
    ("intensity", "expected"),
    [(0.25, [0, 0, 0, 8, 0, 0, 0, 8]), (1.5, [8, 16] * 4), (2.0, [16] * 8)],
)
def test_what_an_iteration_owes_to_the_training_intensity_is_trained_later(tmp_path, intensity, expected):
    settings = {"training_intensity": intensity, "num_steps_sampled_before_learning_starts": 0}
    algorithm = config(**settings).build_algo()
    trained_rows = []
    for iteration in range(8):  # of 8 environment steps each, in minibatches of 8 rows
        if iteration == 3:
            algorithm = Algorithm.from_checkpoint(algorithm.save_to_path(tmp_path))
        trained_rows.append(algorithm.train().get(f"learners/{P}/num_module_steps_trained", 0))
    assert trained_rows == expected


# --- checkpoints ---


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 rows."""
    monkeypatch.setattr(storage, "BLOCK_BYTES", 1000)


ALL = {"n_step": 3, "train_batch_size": 8, "replay_buffer_config": {"type": "prioritized", "capacity": 100}}


def files_of(path: Path) -> dict[str, bytes]:
    """The arrays and the state of the newest save."""
    return {
        file.name: file.read_bytes()
        for file in list_saves(path)[-1].iterdir()
        if file.name != "metadata.json"
    }


def trained(algorithm: Algorithm, iterations: int, path: Path | None = None) -> Algorithm:
    for _ in range(iterations):
        algorithm.train()
    if path:
        algorithm.save_to_path(path)
    return algorithm


@pytest.mark.parametrize("times", [(1,), (5, 19), (2, 3, 16)])
def test_a_run_that_was_killed_ends_with_the_files_of_one_that_never_was(small_blocks, tmp_path, times):
    """Whenever they saved: also where rows are overwritten, and where only part of a block is left."""
    whole = trained(config(**ALL).build_algo(), 9, tmp_path / "whole")
    trained(whole, 16, tmp_path / "whole")
    algorithm, done = config(**ALL).build_algo(), 0
    for iteration in times:
        trained(algorithm, iteration - done, tmp_path / "killed").train()  # what is lost
        algorithm, done = Algorithm.from_checkpoint(tmp_path / "killed"), iteration
    trained(algorithm, 25 - done, tmp_path / "killed")
    found, expected = files_of(tmp_path / "killed"), files_of(tmp_path / "whole")
    assert len([name for name in expected if name.startswith("b")]) == 6
    assert found == expected


def test_a_checkpoint_crosses_backends_in_the_middle_of_training(small_blocks, backend, tmp_path):
    trained(config(**ALL).build_algo(), 8, tmp_path)
    there = Algorithm.from_checkpoint(tmp_path, backend=backend)
    here = Algorithm.from_checkpoint(tmp_path)
    assert digest(there._training.get_state()) == digest(here._training.get_state())
    for algorithm in (there, here):
        trained(algorithm, 3)
    assert largest_difference(there._learner.get_weights(), here._learner.get_weights()) < 1e-5
    back = Algorithm.from_checkpoint(there.save_to_path(tmp_path / "back"), backend="numpy")
    assert digest(back._training.get_state()) == digest(there._training.get_state())


def test_without_the_replay_a_resumed_run_says_so_once_and_fills_it_again(tmp_path, caplog):
    settings = {"checkpoint_replay": False, "num_steps_sampled_before_learning_starts": 16}
    trained(config(**settings).build_algo(), 10, tmp_path)
    assert not [name for name in files_of(tmp_path) if name.startswith("b")]
    resumed = Algorithm.from_checkpoint(tmp_path)
    found = [f"learners/{P}/total_loss" in resumed.train() for _ in range(3)]
    assert found == [False, True, True]
    said = [each.getMessage() for each in caplog.records if "replay" in each.getMessage()]
    assert said == [
        "the checkpoint has no rows of the replay buffer (checkpoint_replay=False): learning goes on after 16 "
        "environment steps have filled it again"
    ]


def test_rows_of_another_space_are_refused_and_nothing_changes(tmp_path):
    algorithm = trained(config().build_algo(), 4, tmp_path)
    before = digest(algorithm._training.get_state())
    checkpoint = load_checkpoint(tmp_path)
    replay = checkpoint.state["training"][P]["replay"]
    replay["rows"] = {name: {**part, "obs": part["obs"][:, :3]} for name, part in replay["rows"].items()}
    save_checkpoint(tmp_path, checkpoint.state, metadata=checkpoint.metadata)
    with pytest.raises(RestoreMismatchError, match=r"obs: \(3,\), expected \(4,\)"):
        algorithm.restore_from_path(tmp_path)
    assert digest(algorithm._training.get_state()) == before


def test_a_part_that_no_algorithm_saves_is_refused_by_name(tmp_path):
    trained(config().build_algo(), 1, tmp_path)
    checkpoint = load_checkpoint(tmp_path)
    save_checkpoint(tmp_path, {**checkpoint.state, "more": {}}, metadata=checkpoint.metadata)
    with pytest.raises(RestoreMismatchError, match="save-2 has parts that an Algorithm has not: more"):
        Algorithm.from_checkpoint(tmp_path)


# --- priorities ---


class Enormous(CartPoleEnv):
    """Two rewards in a row whose sum is no float32."""

    num_steps = 0

    def reset(self, **arguments):
        self.num_steps = 0
        return super().reset(**arguments)

    def step(self, action):
        self.num_steps += 1
        observation, reward, *rest = super().step(action)
        return observation, 3e38 if self.num_steps in (3, 4) else reward, *rest


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_rows_whose_errors_are_not_finite_keep_their_priorities(tmp_path):
    settings = {**ALL, "n_step": 2, "minibatch_size": 1, "nonfinite": "skip", "gamma": 1.0}
    algorithm = trained(config(**settings).environment(Enormous).build_algo(), 10, tmp_path)
    resumed = Algorithm.from_checkpoint(tmp_path, env=Enormous)
    found, expected = ([each.train() for _ in range(10)] for each in (resumed, algorithm))
    skipped = f"learners/{ALL_MODULES}/num_nonfinite_minibatches"
    assert [each[skipped] for each in found] == [each[skipped] for each in expected]
    assert 0 < sum(each[skipped] for each in expected) < 40  # of 80


class Alike(gym.Env):
    """Each observation is the same, so that statistics do not depend on which rows are drawn."""

    observation_space, action_space = OBSERVATIONS, TWO_ACTIONS

    def reset(self, *, seed=None, options=None):
        return np.ones(3, np.float32), {}

    def step(self, action):
        return np.ones(3, np.float32), 1.0, False, False, {}


@dataclass(frozen=True, kw_only=True)
class ReplayConfig(OffPolicyConfig):
    """Of no algorithm: the loss is the learner class's."""


class Errors(OffPolicyTraining):
    @staticmethod
    def td_errors(learner, module_id, config, batch, fwd_out):
        return fwd_out[Columns.VF_PREDS] - batch[Columns.REWARDS]


class ReplayLearner(Learner):
    """Values learn the rewards."""

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        error = Errors.td_errors(self, module_id, config, batch, fwd_out)
        return self.ops.mean(self.ops.square(error))

    def _provide(self, hook, **arguments):
        return Errors if hook == "get_training_class" else super()._provide(hook, **arguments)


def test_priorities_move_no_statistics_of_a_model(backend):
    config = (
        ReplayConfig()
        .environment(Alike)
        .framework(backend, compile="none")
        .env_runners(num_envs_per_env_runner=1, rollout_fragment_length=8)
        .training(lr=0.0, minibatch_size=8, train_batch_size=16, num_steps_sampled_before_learning_starts=0)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=CLASSES[backend]))
        .learners(learner_class=ReplayLearner)
        .debugging(seed=0)
    )
    kinds = ({"type": "uniform"}, {"type": "prioritized"})
    one, other = (config.training(replay_buffer_config=kind).build_algo() for kind in kinds)
    other.learner_group.set_weights(one.learner_group.get_weights())
    for algorithm in (one, other):
        trained(algorithm, 3).stop()
    np.testing.assert_equal(statistics(one._learner), statistics(other._learner))


# --- target networks after updates ---


def test_target_networks_move_after_updates_by_environment_steps():
    algorithm = config(target_network_update_freq=16).build_algo()

    def is_equal() -> bool:
        learner = algorithm._learner
        return largest_difference(learner.targets[P].get_state(), learner.get_weights()[P]) == 0.0

    found = []
    for _ in range(6):  # of 8 environment steps each
        algorithm.train()
        found.append(is_equal())
    assert found == [False, True] * 3


def test_each_module_moves_by_its_own_settings():
    overrides = {"fast": {"tau": 1.0, "target_network_update_freq": 0}, "slow": {"tau": 0.25}}
    spec = {"observation_space": gym.spaces.Box(-1, 1, (2,)), "action_space": gym.spaces.Discrete(2)}
    learner = (
        config(target_network_update_freq=0, minibatch_size=None)
        .environment(None, **spec)
        .multi_agent(policies=["fast", "slow"])
        .rl_module(algorithm_config_overrides_per_module=overrides)
        .build_learner()
    )
    rng = np.random.default_rng(0)
    rows = {
        "obs": rng.normal(size=(8, 2)).astype(np.float32),
        "new_obs": rng.normal(size=(8, 2)).astype(np.float32),
        "actions": np.zeros(8, np.int64),
        "rewards": np.ones(8, np.float32),
        "terminateds": np.zeros(8, bool),
    }
    before = {name: learner.targets[name].get_state() for name in overrides}
    learner.update(dict.fromkeys(overrides, rows))
    for name, tau in (("fast", 1.0), ("slow", 0.25)):
        present = learner.get_weights()[name]
        expected = {key: tau * present[key] + (1 - tau) * value for key, value in before[name].items()}
        assert largest_difference(learner.targets[name].get_state(), expected) < 1e-6
        assert largest_difference(before[name], present) > 1e-4


# --- settings ---


def test_off_policy_settings_are_those_of_rllib_and_one_default_serves_all():
    assert issubclass(DQNConfig, OffPolicyConfig)
    assert issubclass(OffPolicyConfig, AlgorithmConfig)
    merged = DQNConfig().training(replay_buffer_config={"type": "prioritized"}).replay_buffer_config
    assert merged == {"type": "prioritized", "capacity": 100_000, "alpha": 0.6, "beta": 0.4}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"minibatch_size": 64}, "minibatch_size=64 is above train_batch_size=16"),
        (
            {"replay_buffer_config": {"capacity": 7}},
            "capacity=7 rows, and a minibatch has 8; set a capacity of 8 or more",
        ),
        (
            {"replay_buffer_config": {"capacity": 15}, "minibatch_size": None},
            "capacity=15 rows, and a minibatch has 16",
        ),
        (
            {"replay_buffer_config": {"capacity": 7}, "minibatch_size": 4},
            "capacity=7 rows, and one sample of all environments has 8",
        ),
    ],
)
def test_a_replay_buffer_that_is_too_small_is_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        config(**settings).build_algo()


def test_prioritized_replay_needs_td_errors():
    class Unprioritized(OffPolicyTraining):
        pass

    algorithm = config(replay_buffer_config={"type": "prioritized"}).build_algo()
    with pytest.raises(
        ConfigError, match="Unprioritized names no td_errors to prioritize by; use type='uniform'"
    ):
        Unprioritized(algorithm)


def test_the_older_name_of_checkpoint_replay_works():
    assert config().saves_replay
    assert not config(checkpoint_replay=False).saves_replay
    with pytest.warns(DeprecationWarning, match="is now checkpoint_replay = False"):
        older = config(replay_buffer_config={"save": False})
    assert not older.saves_replay
    assert (
        "save" not in config(replay_buffer_config={"save": True}).replay_buffer_config
    )  # of older checkpoints
