"""Policies: from an observation of an environment to an action that it takes, whoever gives the policy."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from learning import value_config

import plugrad
from plugrad import Columns
from plugrad.algorithm import Algorithm
from plugrad.checkpoint import load_checkpoint, save_checkpoint
from plugrad.errors import (
    BatchError,
    CheckpointError,
    ConfigError,
    PlugradError,
    RestoreMismatchError,
    UnknownModuleError,
)
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig

ROOM = Dict(
    {
        "where": Box(-1.0, 1.0, (2,), np.float64),
        "room": Discrete(3, start=1),
        "seen": Tuple((MultiBinary(2), MultiDiscrete([2, 3]))),
    }
)
ACTIONS = (Discrete(3, start=5), MultiDiscrete([2, 3], start=[1, 7]), Box(-0.01, 0.02, (2,), np.float64))


class Recording(gym.Env[Any, Any]):
    """Ends after 5 steps, and keeps what it observed and was told to do; episodes are determined by the seed."""

    observed: list[Any] = []  # noqa: RUF012 (of all of them, emptied by the tests)
    told: list[Any] = []  # noqa: RUF012

    def __init__(
        self, observation_space: gym.Space[Any] = ROOM, action_space: gym.Space[Any] = ACTIONS[0]
    ) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        self.steps = 0
        return self.observe(), {}

    def observe(self) -> Any:
        self.last = self.observation_space.sample()
        return self.last

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        Recording.observed.append(self.last)
        Recording.told.append(action)
        self.steps += 1
        return self.observe(), 1.0, self.steps == 5, False, {}


def config(env: Any = Recording, backend: str = "numpy", **env_config: Any) -> PPOConfig:
    return (
        PPOConfig()
        .environment(env, env_config=env_config)
        .framework(backend)
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .env_runners(num_envs_per_env_runner=2)
        .training(train_batch_size=16, minibatch_size=None, num_epochs=1, lr=0.1)
        .debugging(seed=0)
    )


def stack(rows: list[Any], space: gym.Space[Any]) -> Any:
    """A batch of observations in the structure of the space."""
    if isinstance(space, Dict):
        return {key: stack([row[key] for row in rows], each) for key, each in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(stack([row[n] for row in rows], each) for n, each in enumerate(space.spaces))
    return np.stack(rows)


def trained(some: PPOConfig, iterations: int = 2) -> Algorithm:
    algorithm = some.build_algo()
    for _ in range(iterations):
        algorithm.train()
    return algorithm


# --- normalisation ---------------------------------------------------------------------------------------------------


def test_a_policy_acts_on_an_environments_observations_with_the_statistics_of_normalisation(tmp_path):
    algorithm = trained(config("Pendulum-v1").env_runners(normalize_observations=True))
    algorithm.save_to_path(tmp_path)
    observation = np.array([0.9, 0.4, -3.0], np.float32)
    rows = algorithm.env_runner.normalizer.normalize(observation[None])
    learner = algorithm.learner_group.foreach_learner(lambda each: each)[0]
    expected = np.clip(learner.compute_actions(rows, explore=False)[Columns.ACTIONS][0], -2, 2)
    unscaled = learner.compute_actions(observation[None], explore=False)[Columns.ACTIONS][0]
    assert abs(expected - unscaled) > 1e-3
    for policy in (algorithm.get_policy(), plugrad.load_policy(tmp_path)):
        action, state = policy.predict(observation)
        np.testing.assert_array_equal(action, expected)
        assert state is None
        assert policy.observation_space == gym.make("Pendulum-v1").observation_space
        assert policy.action_space == gym.make("Pendulum-v1").action_space


def test_the_policy_of_an_algorithm_follows_training_and_a_loaded_one_stays(tmp_path):
    algorithm = trained(config("Pendulum-v1").env_runners(normalize_observations=True))
    algorithm.save_to_path(tmp_path)
    here, there = algorithm.get_policy(), plugrad.load_policy(tmp_path)
    observations = np.random.default_rng(0).normal(size=(8, 3))
    before, _ = here.predict(observations)
    np.testing.assert_array_equal(there.predict(observations)[0], before)
    algorithm.train()
    assert np.abs(here.predict(observations)[0] - before).max() > 1e-4
    np.testing.assert_array_equal(there.predict(observations)[0], before)


def test_a_learner_has_no_statistics_of_normalisation_and_its_policy_says_so(tmp_path):
    some = config("Pendulum-v1").env_runners(normalize_observations=True)
    learner = some.build_learner()
    with pytest.warns(UserWarning, match="normalised already"):
        policy = learner.get_policy()
    learner.save_to_path(tmp_path)
    with pytest.warns(UserWarning, match="normalised already"):
        loaded = plugrad.load_policy(tmp_path)
    row = np.array([0.5, 0.1, -0.2], np.float32)
    expected = learner.compute_actions(row[None], explore=False)[Columns.ACTIONS][0]
    for each in (policy, loaded):
        np.testing.assert_array_equal(each.predict(row)[0], expected)


@pytest.mark.parametrize(
    "damage",
    [
        {"m2": np.array([-1.0, 1.0, 1.0])},
        {"mean": np.array([np.nan, 0, 0])},
        {"mean": np.zeros(2)},
        {"count": -1},
    ],
)
def test_damaged_statistics_are_refused(tmp_path, damage):
    algorithm = trained(config("Pendulum-v1").env_runners(normalize_observations=True), 1)
    state = algorithm.env_runner.normalizer.get_state()
    with pytest.raises(RestoreMismatchError):
        algorithm.env_runner.normalizer.set_state(state | damage)
    np.testing.assert_equal(algorithm.env_runner.normalizer.get_state(), state)


# --- actions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", ACTIONS, ids=str)
@pytest.mark.parametrize("deterministic", [True, False])
def test_actions_are_of_the_environments_space(tmp_path, space, deterministic):
    algorithm = trained(config(action_space=space))
    algorithm.save_to_path(tmp_path)
    for policy in (
        algorithm.get_policy(),
        algorithm.learner_group.get_policy(),
        plugrad.load_policy(tmp_path),
    ):
        assert policy.action_space == space
        policy.observation_space.seed(0)
        rows = [policy.observation_space.sample() for _ in range(20)]
        batch, _ = policy.predict(stack(rows, policy.observation_space), deterministic=deterministic)
        assert batch.dtype == space.dtype
        assert all(space.contains(action) for action in batch)
        one, _ = policy.predict(rows[0], deterministic=deterministic)
        assert space.contains(one)
        if deterministic:
            np.testing.assert_array_equal(one, batch[0])
        elif not isinstance(space, Box):
            assert len(np.unique(batch, axis=0)) > 1


@pytest.mark.parametrize("space", ACTIONS, ids=str)
def test_evaluation_recording_and_a_loop_of_ones_own_do_the_same(tmp_path, space):
    """An environment that writes down what it observed and was told, and the same observations given to `predict`."""
    algorithm = trained(config(action_space=space).env_runners(normalize_observations=True))
    algorithm.save_to_path(tmp_path)
    policy = plugrad.load_policy(tmp_path)
    for run in (lambda: algorithm.evaluate(num_episodes=2), lambda: algorithm.record(2)):
        Recording.observed, Recording.told = [], []
        run()
        assert len(Recording.told) >= 10
        expected, _ = policy.predict(stack(Recording.observed, ROOM))
        np.testing.assert_allclose(np.stack(Recording.told), expected, atol=1e-6)


def test_drawing_actions_changes_nothing_that_training_draws():
    quiet, asked = config("CartPole-v1").build_algo(), config("CartPole-v1").build_algo()
    policy = asked.get_policy()
    drawn = set()
    for _ in range(3):
        results = [algorithm.train()["learners"]["default_policy/total_loss"] for algorithm in (quiet, asked)]
        assert results[0] == results[1]
        drawn |= {int(policy.predict(np.zeros(4), deterministic=False)[0]) for _ in range(10)}
    assert drawn == {0, 1}


def test_recording_with_exploration_changes_nothing_that_training_draws_and_repeats_itself():
    quiet, asked = config("CartPole-v1").build_algo(), config("CartPole-v1").build_algo()
    first, second = (asked.record(2, explore=True) for _ in range(2))
    for one, other in zip(first.episodes, second.episodes, strict=True):
        np.testing.assert_array_equal(one.actions, other.actions)
    results = [algorithm.train()["learners"]["default_policy/total_loss"] for algorithm in (quiet, asked)]
    assert results[0] == results[1]


def test_a_policy_of_dqn_explores_as_much_as_training_did(tmp_path):
    some = (
        DQNConfig()
        .environment("CartPole-v1")
        .framework("numpy")
        .rl_module(model_config={"fcnet_hiddens": [4]})
    )
    some = some.env_runners(num_envs_per_env_runner=2, rollout_fragment_length=8).debugging(seed=0)
    some = some.training(
        train_batch_size=8,
        minibatch_size=8,
        num_steps_sampled_before_learning_starts=1,
        epsilon=[[0, 1.0], [16, 0.0]],
    )
    algorithm = some.build_algo()
    algorithm.save_to_path(tmp_path / "first")
    algorithm.train()
    algorithm.save_to_path(tmp_path / "last")
    rows = np.zeros((100, 4))
    for name, expected in (("first", 2), ("last", 1)):
        policy = plugrad.load_policy(tmp_path / name)
        assert len(np.unique(policy.predict(rows, deterministic=False)[0])) == expected


# --- observations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        ({"where": [0, 0]}, "expected a dict of"),
        (np.zeros(12), "expected a dict of .* found ndarray"),
        ({"where": [0, 0, 0], "room": 1, "seen": ([0, 1], [0, 0])}, r"observation\['where'\]: .*shape \[3\]"),
        (
            {"where": [0, 0], "room": 0, "seen": ([0, 1], [0, 0])},
            r"observation\['room'\]: expected whole numbers",
        ),
        ({"where": [0, 0], "room": 1, "seen": ([0, 1],)}, r"observation\['seen'\]: expected a tuple of 2"),
        ({"where": [[0, 0]], "room": 1, "seen": ([0, 1], [0, 0])}, "equally many rows everywhere"),
        (
            {"where": ["a", "b"], "room": 1, "seen": ([0, 1], [0, 0])},
            r"observation\['where'\]: expected an array",
        ),
        (
            {"where": [[0], 0], "room": 1, "seen": ([0, 1], [0, 0])},
            r"observation\['where'\]: expected an array",
        ),
    ],
)
def test_an_observation_that_does_not_fit_says_where(observation, message):
    policy = config().build_algo().get_policy()
    with pytest.raises(BatchError, match=message):
        policy.predict(observation)


BYTES = Box(0, 255, (2,), np.uint8)


def reading(space: gym.Space[Any]) -> plugrad.Learner:
    """A learner whose module reads a space; its actions tell observations apart."""
    some = PPOConfig().framework("numpy").rl_module(model_config={"fcnet_hiddens": [4]}).debugging(seed=0)
    learner = some.build_learner(spaces={"default_policy": (space, Box(-9.0, 9.0, (2,)))})
    rng, weights = np.random.default_rng(0), learner.get_weights()["default_policy"]
    changed = {name: rng.normal(size=each.shape).astype(np.float32) for name, each in weights.items()}
    learner.set_weights({"default_policy": changed})
    return learner


@pytest.mark.parametrize(
    ("space", "observation", "found"),
    [
        (BYTES, np.array([0.5, 200.0]), r"0\.5 in float64\[2\]"),
        (BYTES, np.array([[7.0, 8.0], [0.25, 1.0]], np.float32), r"0\.25 in float32\[2, 2\]"),
        (BYTES, np.array([12, 256]), r"256 in int64\[2\]"),
        (BYTES, np.array([12, 256], np.uint16), r"256 in uint16\[2\]"),
        (BYTES, [12, -1], r"-1 in int64\[2\]"),
        (BYTES, np.array([np.nan, 1.0]), r"nan in float64\[2\]"),
        (Box(-9, 9, (2,), np.int8), np.array([1, 300], np.int16), r"300 in int16\[2\]"),
        (MultiBinary(3), [0.9, 0.9, 0.9], r"0\.9 in float64\[3\]"),
        (MultiBinary(3), [0, 1, 2], r"\[0 1 2\]"),
        (Discrete(4), 2.9, r"2\.9 in float64\[\]"),
        (MultiDiscrete([4, 4]), [[1.5, 2.0]], r"1\.5 in float64\[1, 2\]"),
    ],
)
def test_numbers_that_the_dtype_of_the_space_does_not_hold_are_refused(space, observation, found):
    """Cast to that dtype, 0.5 is 0 and 256 is 0: the action would be that of another observation."""
    with pytest.raises(BatchError, match=rf"observation: expected .*found {found}"):
        reading(space).get_policy().predict(observation)
    learner = reading(Dict(part=space, other=Discrete(2)))
    single = np.ndim(observation) == len(space.shape)
    whole = {
        "part": np.asarray(observation),
        "other": np.zeros((), int) if single else np.zeros(len(observation), int),
    }
    with pytest.raises(BatchError, match=rf"observation\['part'\]: expected .*found {found}"):
        learner.get_policy().predict(whole)
    batch = {name: np.asarray(each)[None] if single else each for name, each in whole.items()}
    with pytest.raises(BatchError, match=r"column 'obs': observation\['part'\]: expected"):
        learner.compute_actions(batch)


@pytest.mark.parametrize(
    ("space", "given", "same"),
    [
        (BYTES, [7, 255], np.array([7, 255], np.uint8)),
        (BYTES, np.array([7.0, 255.0]), np.array([7, 255], np.uint8)),
        (MultiBinary(2), [True, False], np.array([1, 0], np.int8)),
        (Discrete(4), 2.0, np.int64(2)),
        (Discrete(4), np.uint8(2), np.int64(2)),
        (Box(-9.0, 9.0, (2,)), [1, 2], np.array([1, 2], np.float32)),
    ],
)
def test_whole_numbers_of_any_dtype_are_those_of_the_space(space, given, same):
    policy = reading(space).get_policy()
    np.testing.assert_array_equal(policy.predict(given)[0], policy.predict(same)[0])


def test_compute_actions_takes_rows_and_the_structure_of_the_space_and_no_other():
    learner = config().build_algo()._learner
    one = ROOM.sample()
    batch = stack([one] * 2, ROOM)
    rows = np.stack([gym.spaces.flatten(ROOM, one)] * 2).astype(np.float32)
    found, expected = (learner.compute_actions(obs, explore=False) for obs in (batch, rows))
    np.testing.assert_array_equal(found[Columns.ACTION_DIST_INPUTS], expected[Columns.ACTION_DIST_INPUTS])
    flat = config("CartPole-v1").build_algo()._learner
    with pytest.raises(
        BatchError, match=r"column 'obs': expected an array \[B, ...\] of rows .*found dict of where"
    ):
        flat.compute_actions({"where": np.zeros((2, 4))})


def test_an_empty_batch_gives_no_actions():
    policy = config("CartPole-v1").build_algo().get_policy()
    assert policy.predict(np.zeros((0, 4)))[0].shape == (0,)
    policy = config().build_algo().get_policy()
    none = stack([ROOM.sample()], ROOM)
    none = {
        "where": none["where"][:0],
        "room": none["room"][:0],
        "seen": tuple(each[:0] for each in none["seen"]),
    }
    assert policy.predict(none)[0].shape == (0,)


# --- a state ---------------------------------------------------------------------------------------------------------


def test_a_recurrent_policy_gives_its_state_and_begins_anew_where_episodes_begin(tmp_path):
    some = config("CartPole-v1").rl_module(
        model_config={"fcnet_hiddens": [4], "use_lstm": True, "lstm_cell_size": 3}
    )
    algorithm = trained(some, 1)
    algorithm.save_to_path(tmp_path)
    observations = np.random.default_rng(0).normal(size=(3, 2, 4)).astype(np.float32)
    for policy in (algorithm.get_policy(), plugrad.load_policy(tmp_path)):
        _, first = policy.predict(observations[0])
        _, second = policy.predict(observations[1], first)
        _, again = policy.predict(observations[1], first, episode_start=np.array([False, True]))
        _, fresh = policy.predict(observations[1])
        _, alone = policy.predict(observations[1, 0], {name: value[:1] for name, value in first.items()})
        for name in first:
            assert first[name].shape == (2, 3)
            assert np.abs(second[name] - fresh[name]).max() > 1e-4
            np.testing.assert_array_equal(again[name][0], second[name][0])
            np.testing.assert_array_equal(again[name][1], fresh[name][1])
            np.testing.assert_allclose(alone[name][0], second[name][0], atol=1e-6)
        with pytest.raises(BatchError, match=r"episode_start: expected bool \[2\]"):
            policy.predict(observations[1], first, episode_start=[True])
        with pytest.raises(BatchError, match="state"):
            policy.predict(observations[1], {"h": np.zeros((2, 3))})


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_observation_that_is_not_finite_is_refused(bad):
    """In training it is an error of the environment; acted on, it gives NaN, or the first action, in silence."""
    policy = config("CartPole-v1").env_runners(normalize_observations=True).build_algo().get_policy()
    batch = np.zeros((3, 4), np.float32)
    batch[1, 2] = bad
    for observation in (batch, batch[1], batch[1].tolist()):
        with pytest.raises(BatchError, match="observation: expected finite numbers; found NaN or infinity: "):
            policy.predict(observation)
    large = np.full(4, 1e30, np.float32)  # its square overflows
    assert policy.predict(large)[0] in policy.action_space


def test_a_sensor_that_is_not_finite_is_named_by_its_key():
    space = Dict({"camera": Box(0, 255, (20, 20, 3), np.uint8), "arm": Dict({"speed": Box(-1.0, 1.0, (2,))})})
    settings = {"conv_filters": [], "fcnet_hiddens": [4]}
    some = PPOConfig().framework("numpy").environment(observation_space=space, action_space=ACTIONS[0])
    policy = some.rl_module(model_config=settings).build_learner().get_policy()
    one = {"camera": np.zeros((20, 20, 3), np.uint8), "arm": {"speed": np.array([0.5, np.nan], np.float32)}}
    batch = {
        "camera": np.zeros((2, 20, 20, 3), np.uint8),
        "arm": {"speed": np.float32([[0, 0], [0, np.nan]])},
    }
    for observation in (one, batch):
        with pytest.raises(
            BatchError, match=r"observation\['arm'\]\['speed'\]: expected finite.*NaN.*: \[nan\]"
        ):
            policy.predict(observation)


@pytest.mark.parametrize("space", [Box(-np.inf, np.inf, (2,), np.float64), ROOM], ids=["box", "dict"])
def test_an_observation_that_float32_does_not_hold_is_refused_unless_it_is_normalised(space):
    """Modules read float32: it would be infinite, and the actions NaN."""
    policy = config(observation_space=space).build_algo().get_policy()
    large = np.array([0.0, -1e39])
    one = large if space is not ROOM else {**ROOM.sample(), "where": large}
    for observation in (one, stack([one, one], space)):
        with pytest.raises(
            BatchError,
            match=r"expected finite numbers; found numbers that are too large for float32: \[-1e\+39",
        ):
            policy.predict(observation)
    algorithm = config(observation_space=space).env_runners(normalize_observations=True).build_algo()
    assert algorithm.get_policy().predict(one)[0] in ACTIONS[0]


def test_a_policy_without_a_state_refuses_one():
    policy = config("CartPole-v1").build_algo().get_policy()
    spaces = f"observation_space={policy.observation_space}, action_space=Discrete(2)"
    assert repr(policy) == f"Policy({spaces})"
    with pytest.raises(BatchError, match="not stateful"):
        policy.predict(np.zeros(4), state={"h": np.zeros((1, 3))})
    assert policy.predict(np.zeros(4), episode_start=[True])[1] is None


# --- where policies come from ----------------------------------------------------------------------------------------


def test_the_policy_of_a_group_follows_its_updates():
    algorithm = config("CartPole-v1").build_algo()
    policy = algorithm.learner_group.get_policy()
    observations = np.random.default_rng(0).normal(size=(50, 4))
    weights = algorithm.learner_group.get_weights()
    rng = np.random.default_rng(1)
    others = {
        name: rng.normal(size=each.shape).astype(np.float32)
        for name, each in weights["default_policy"].items()
    }
    before = policy.predict(observations)[0]
    algorithm.learner_group.set_weights({"default_policy": others})
    assert (policy.predict(observations)[0] != before).any()


def test_a_run_directory_gives_its_best_checkpoint_else_its_last(tmp_path):
    algorithm = trained(config("Pendulum-v1"), 1)
    (tmp_path / "config.toml").write_text(algorithm.config.to_toml())
    with pytest.raises(CheckpointError, match="has no checkpoint yet"):
        plugrad.load_policy(tmp_path)
    expected = {}
    for name in ("last", "best"):
        algorithm.train()
        algorithm.save_to_path(tmp_path / "checkpoints" / name)
        expected[name] = algorithm.get_policy().predict(np.ones(3))[0]
        np.testing.assert_array_equal(plugrad.load_policy(tmp_path).predict(np.ones(3))[0], expected[name])
    assert expected["last"] != expected["best"]


def test_an_unknown_module_is_named_with_those_that_there_are(tmp_path):
    algorithm = config("CartPole-v1").multi_agent(policies={"p0"}).build_learner_group()
    algorithm.save_to_path(tmp_path)
    assert plugrad.load_policy(tmp_path).predict(np.zeros(4))[0] in (0, 1)
    assert plugrad.load_policy(tmp_path, module_id="p0").predict(np.zeros(4))[0] in (0, 1)
    with pytest.raises(UnknownModuleError, match="no module 'p1'; there are: p0"):
        plugrad.load_policy(tmp_path, module_id="p1")
    with pytest.raises(UnknownModuleError, match="no module 'p1'; there are: p0"):
        algorithm.get_policy("p1")


class OwnModule(plugrad.RandomRLModule):
    """A class of the user's own."""


def test_a_policy_is_loaded_whatever_classes_other_modules_environment_and_learner_have(tmp_path):
    own = plugrad.RLModuleSpec(module_class=OwnModule)
    some = config().multi_agent(policies={"default_policy": plugrad.RLModuleSpec(), "opponent": own})
    some = some.learners(learner_class=plugrad.Learner, learner_connector=no_pieces)
    algorithm = some.build_algo()
    algorithm.save_to_path(tmp_path)
    observation = ROOM.sample()
    expected = algorithm.get_policy().predict(observation)[0]
    assert plugrad.load_policy(tmp_path).predict(observation)[0] == expected
    with pytest.raises(
        ConfigError, match=r"'opponent' of this checkpoint is .*OwnModule.*plugrad\.load_policy"
    ):
        plugrad.load_policy(tmp_path, module_id="opponent")
    random = plugrad.RandomRLModule(
        observation_space=algorithm.config.observation_space, action_space=algorithm.config.action_space
    )
    policy = plugrad.load_policy(tmp_path, module_id="opponent", module=random, backend="numpy")
    assert policy.predict(observation)[0] in (5, 6, 7)


def no_pieces(observation_space: Any, action_space: Any) -> list[Any]:
    return []


def test_a_policy_of_a_learner_without_an_algorithm_is_loaded(tmp_path):
    learner = value_config().build_learner()
    learner.save_to_path(tmp_path)
    rows = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    expected = learner.compute_actions(rows, explore=False)["actions"]
    np.testing.assert_array_equal(plugrad.load_policy(tmp_path).predict(rows)[0], expected)


HUGE = {"__space__": "Box", "low": 0, "high": 1, "shape": [10**5, 10**5], "dtype": "int8"}


@pytest.mark.parametrize(
    ("metadata", "state"),
    [
        ({"env_observation_space": "Box"}, {}),
        ({"env_observation_space": {"__space__": "Discrete", "n": 5, "start": 0}}, {}),
        ({"env_observation_space": {"__space__": "Text", "max_length": -1}}, {}),
        ({"env_observation_space": {"__space__": "Discrete", "n": 10**9, "start": 0}}, {}),
        ({"env_observation_space": HUGE}, {}),
        ({}, {"env_runner": {}}),
        ({}, {"env_runner": [1]}),
        ({}, {"env_runner": {"normalizer": {"count": 3, "mean": np.zeros(3), "m2": np.full(3, np.nan)}}}),
        ({}, {"env_runner": {"normalizer": {"count": None, "mean": np.zeros(3), "m2": np.ones(3)}}}),
        ({}, {"learner": {"rl_module": [1]}}),
        ({}, {"learner": {"rl_module": {"default_policy": {}}}}),
        ({}, {"learner": {"rl_module": {"other": {}}}}),
    ],
)
def test_a_checkpoint_that_no_plugrad_wrote_is_an_error_of_plugrads(tmp_path, metadata, state):
    algorithm = config("Pendulum-v1").env_runners(normalize_observations=True).build_algo()
    algorithm.save_to_path(tmp_path / "good")
    good = load_checkpoint(tmp_path / "good")
    save_checkpoint(tmp_path / "bad", good.state | state, metadata=dict(good.metadata) | metadata)
    with pytest.raises(PlugradError):
        plugrad.load_policy(tmp_path / "bad")


def test_a_network_that_the_checkpoint_does_not_hold_is_refused_before_it_is_built(tmp_path):
    algorithm = config("CartPole-v1").build_algo()
    algorithm.save_to_path(tmp_path / "good")
    good = load_checkpoint(tmp_path / "good")
    settings = {**good.metadata["config"], "model_config": {"fcnet_hiddens": [900_000, 900_000]}}
    save_checkpoint(tmp_path / "bad", good.state, metadata={**good.metadata, "config": settings})
    with pytest.raises(RestoreMismatchError):
        plugrad.load_policy(tmp_path / "bad")
