"""Policies as one file: what was saved acts as before, and says what it is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from gymnasium.spaces import Box, Discrete, Space
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_runs import plugrad as command
from tiny_runs import tiny_run

import plugrad
from plugrad import RandomRLModule
from plugrad.algorithm import Algorithm
from plugrad.errors import CheckpointError, ConfigError, NonFiniteError
from plugrad.policy import Policy
from plugrad_ppo import PPOConfig

ROWS = 8


def config(env: Any = "Pendulum-v1") -> PPOConfig:
    some = PPOConfig().framework("numpy").rl_module(model_config={"fcnet_hiddens": [4]}).debugging(seed=0)
    some = some.training(train_batch_size=16, minibatch_size=None, num_epochs=1, lr=0.1)
    return some.environment(env).env_runners(num_envs_per_env_runner=2, normalize_observations=True)


def saved_and_loaded(policy: Policy, path: Path) -> Policy:
    assert policy.save(path) == str(path)
    return plugrad.load_policy(path)


def assert_equal(one: Policy, other: Policy, observations: Any) -> None:
    assert (one.observation_space, one.action_space) == (other.observation_space, other.action_space)
    np.testing.assert_array_equal(one.predict(observations)[0], other.predict(observations)[0])


@pytest.fixture(scope="module")
def trained() -> Algorithm:
    algorithm = config().build_algo()
    algorithm.train()
    return algorithm


def test_a_file_acts_as_the_policy_that_was_saved_whoever_saved_it(
    trained: Algorithm, tmp_path: Path
) -> None:
    observations = np.random.default_rng(0).normal(size=(ROWS, 3))
    trained.save_to_path(tmp_path / "checkpoint")
    policies = (trained.get_policy(), plugrad.load_policy(tmp_path / "checkpoint"))
    for policy in policies:
        loaded = saved_and_loaded(policy, tmp_path / "policy.safetensors")
        assert_equal(policy, loaded, observations)
        again = saved_and_loaded(loaded, tmp_path / "again.safetensors")
        assert (tmp_path / "policy.safetensors").read_bytes() == (tmp_path / "again.safetensors").read_bytes()
        assert_equal(policy, again, observations)
    random = [each.predict(observations, deterministic=False)[0] for each in policies]
    np.testing.assert_array_equal(*random)


@pytest.mark.filterwarnings("ignore:normalize_observations")
def test_learners_and_groups_save_policies_too(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
    for owner in (config().build_learner(), config().build_learner_group()):
        assert_equal(owner.get_policy(), saved_and_loaded(owner.get_policy(), tmp_path / "p"), rows)


OBSERVATIONS = st.one_of(
    st.lists(st.integers(1, 3), max_size=2).map(lambda shape: Box(-2.0, 2.0, tuple(shape), np.float64)),
    st.integers(1, 5).map(lambda n: Discrete(n, start=n - 2)),
)
ACTIONS = st.one_of(
    st.integers(1, 4).map(lambda n: Discrete(n, start=3 - n)),
    st.integers(1, 3).map(lambda n: Box(-0.1, 0.2, (n,), np.float64)),
)


@settings(max_examples=20)
@given(OBSERVATIONS, ACTIONS, st.booleans(), st.booleans())
def test_a_file_acts_as_before_in_every_space(
    tmp_path_factory: pytest.TempPathFactory, observed: Space[Any], told: Space[Any], shared: bool, lstm: bool
) -> None:
    model = {"fcnet_hiddens": [3], "vf_share_layers": shared, "use_lstm": lstm, "lstm_cell_size": 2}
    some = config(None).env_runners(normalize_observations=False).rl_module(model_config=model)
    learner = some.environment(observation_space=observed, action_space=told).build_learner()
    policy = learner.get_policy()
    loaded = saved_and_loaded(policy, tmp_path_factory.mktemp("any") / "policy.safetensors")
    observed.seed(0)
    states = None, None
    for _ in range(3):
        observation = observed.sample()
        (one, first), (other, second) = (
            each.predict(observation, state) for each, state in zip((policy, loaded), states, strict=True)
        )
        states = first, second
        np.testing.assert_array_equal(one, other)
        assert told.contains(other)


@pytest.mark.parametrize("image", [False, True], ids=["numbers", "images"])
@pytest.mark.parametrize("name", [each.name for each in plugrad.list_plugins() if each.kind == "algorithm"])
def test_the_policy_of_every_algorithm_is_saved_without_what_only_training_needs(
    tmp_path: Path, name: str, image: bool
) -> None:
    observed = Box(0, 255, (20, 20, 1), np.uint8) if image else Box(-1.0, 1.0, (3,))
    told = Discrete(3) if name in ("dqn", "pqn", "qrdqn", "bc") else Box(-1.0, 1.0, (2,), np.float32)
    model = {"fcnet_hiddens": [4], "conv_filters": [[2, 4, 4]] if image else []}
    some = plugrad.get_algorithm(name)().framework("numpy").rl_module(model_config=model).debugging(seed=0)
    learner = some.environment(observation_space=observed, action_space=told).build_learner()
    policy = learner.get_policy()
    loaded = saved_and_loaded(policy, tmp_path / "policy.safetensors")
    observed.seed(0)
    observations = np.stack([observed.sample() for _ in range(ROWS)])
    for deterministic in (True, False):
        one, other = (each.predict(observations, deterministic=deterministic)[0] for each in (policy, loaded))
        np.testing.assert_array_equal(one, other)
    with safetensors.safe_open(tmp_path / "policy.safetensors", "numpy") as file:
        saved = {key for key in file.keys() if key.startswith("weights/")}  # noqa: SIM118 (it is no mapping)
    critics = {
        key for key in learner.get_weights()["default_policy"] if key.startswith(("vf", "qf.0", "qf.1"))
    }
    assert not saved & {f"weights/{key}" for key in critics if "dqn" not in name}


def test_a_policy_that_is_not_a_number_is_not_saved(tmp_path: Path) -> None:
    learner = config(None).env_runners(normalize_observations=False)
    learner = learner.environment(
        observation_space=Box(-1, 1, (2,)), action_space=Discrete(2)
    ).build_learner()
    weights = learner.get_weights()["default_policy"]
    learner.set_weights({"default_policy": weights | {"pi.0.bias": weights["pi.0.bias"] * np.nan}})
    with pytest.raises(
        NonFiniteError, match=r"weights/pi\.0\.bias of module 'default_policy' is NaN or infinite"
    ):
        learner.get_policy().save(tmp_path / "policy")
    assert not list(tmp_path.iterdir())


def test_a_file_opens_with_safetensors_and_names_its_weights(trained: Algorithm, tmp_path: Path) -> None:
    trained.get_policy().save(tmp_path / "policy.safetensors")
    weights = trained.learner_group.get_weights()["default_policy"]
    with safetensors.safe_open(tmp_path / "policy.safetensors", "numpy") as file:
        assert any("vf" in name for name in weights)
        for name, value in weights.items():
            if name.startswith("vf"):
                continue  # acting does without
            np.testing.assert_array_equal(file.get_tensor(f"weights/{name}"), value)
        assert file.metadata()["format"] == "plugrad policy"


def test_a_module_of_ones_own_is_saved_and_opened_only_with_it(tmp_path: Path) -> None:
    spaces = {"observation_space": Box(-1, 1, (3,), np.float32), "action_space": Discrete(2)}
    own = plugrad.RLModuleSpec(module_class=RandomRLModule, **spaces)
    learner = (
        config(None).env_runners(normalize_observations=False).rl_module(rl_module_spec=own).build_learner()
    )
    learner.get_policy().save(tmp_path / "p")
    with pytest.raises(
        ConfigError, match=r"your own class plugrad\..*:RandomRLModule.*load_policy\(path, module=...\)"
    ):
        plugrad.load_policy(tmp_path / "p")
    loaded = plugrad.load_policy(tmp_path / "p", module=RandomRLModule(**spaces))
    assert loaded.predict(np.zeros(3))[0] in (0, 1)


def test_another_file_is_no_policy_file(tmp_path: Path) -> None:
    (tmp_path / "weights.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}      " * 10)
    with pytest.raises(CheckpointError, match=r"weights\.safetensors is not a policy file of plugrad"):
        plugrad.load_policy(tmp_path / "weights.safetensors")
    with pytest.raises(CheckpointError, match="nothing"):
        plugrad.load_policy(tmp_path / "nothing")


def test_export_writes_the_policy_of_a_run(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", "--stop-timesteps=16")
    done = command("export", run, "-o", tmp_path / "some" / "policy.safetensors", code=0)
    assert done.output.endswith("policy.safetensors\n")
    observations = np.random.default_rng(0).normal(size=(ROWS, 4))
    assert_equal(
        plugrad.load_policy(run), plugrad.load_policy(tmp_path / "some" / "policy.safetensors"), observations
    )


def test_inspect_says_what_a_file_is(trained: Algorithm, tmp_path: Path) -> None:
    trained.get_policy().save(tmp_path / "policy.safetensors")
    lines = [
        " ".join(line.split())
        for line in command("inspect", tmp_path / "policy.safetensors", code=0).output.splitlines()
    ]
    assert lines[0].startswith("policy file: ")
    for line in ("kind: policy", "algorithm: ppo", "modules: default_policy", "env_runner/normalizer 2 6 48"):
        assert line in lines
    assert "takes: Box of shape [3], float32" in lines
    assert "returns: Box of shape [1], float32" in lines
    refused = command("inspect", __file__)
    assert (refused.exit_code, "is not a policy file" in refused.output) == (1, True)
