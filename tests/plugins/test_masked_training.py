"""Training with masks: solved where most choices are forbidden, recorded, cloned, saved, resumed and deployed."""

import masked
import numpy as np
import pytest
from gymnasium import spaces
from learning import digest, quick_mode

import plugrad
from plugrad import Columns
from plugrad.algorithm import Algorithm
from plugrad.errors import BatchError
from plugrad.offline import load_episodes, save_episodes
from plugrad_bc import BCConfig
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig

SOLVED = {
    "Discrete": (spaces.Discrete(8), 5),
    "MultiDiscrete": (spaces.MultiDiscrete([3, 4]), 3),
    "MultiBinary": (spaces.MultiBinary(4), 2),
}


def config(cls, backend, **env_config):
    made = (
        cls()
        .framework(backend, compile=quick_mode(backend))
        .environment(masked.MaskedEnv, env_config=env_config)
    )
    return (
        made.rl_module(model_config={"fcnet_hiddens": [16]})
        .env_runners(num_envs_per_env_runner=2)
        .debugging(seed=1)
    )


@pytest.mark.parametrize(("space", "forbidden"), SOLVED.values(), ids=SOLVED.keys())
def test_ppo_solves_an_environment_that_forbids_most_of_its_choices(backend, space, forbidden):
    made = config(PPOConfig, backend, action_space=space, forbidden=forbidden, source="method")
    made = made.env_runners(num_envs_per_env_runner=8)
    algorithm = made.training(
        train_batch_size=256, minibatch_size=64, num_epochs=5, lr=0.03, gamma=0.0
    ).build_algo()
    for _ in range(6):
        algorithm.train()
    reached = algorithm.evaluate(num_episodes=10)["episode_return_mean"]
    algorithm.stop()
    assert reached > 0.97 * masked.LENGTH


REPLAY = {"train_batch_size": 16, "minibatch_size": 16, "num_steps_sampled_before_learning_starts": 40}
RESUMED = {
    "PPO": (PPOConfig, {"minibatch_size": None, "num_epochs": 1}),
    "DQN": (DQNConfig, {**REPLAY, "n_step": 3}),
    "SAC": (SACConfig, {**REPLAY, "n_step": 2, "random_steps": 60}),
}


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_equals_one_that_was_never_stopped(backend, name, tmp_path):
    cls, settings = RESUMED[name]
    whole = config(cls, backend).env_runners(rollout_fragment_length=7).training(**settings).build_algo()
    for _ in range(5):
        whole.train()
    whole.save_to_path(tmp_path)
    resumed = Algorithm.from_checkpoint(tmp_path, env=masked.MaskedEnv)
    for algorithm in (whole, resumed):
        for _ in range(3):
            algorithm.train()
        algorithm.stop()
    assert digest(resumed._training.get_state()) == digest(whole._training.get_state())
    assert digest(resumed._learner.get_state()) == digest(whole._learner.get_state())


def test_recorded_episodes_keep_their_masks_and_are_cloned_with_them(backend, tmp_path):
    made = config(PPOConfig, backend).offline_data(
        output=str(tmp_path / "trained"), output_max_rows_per_file=30
    )
    algorithm = made.training(train_batch_size=50, minibatch_size=None, num_epochs=1).build_algo()
    algorithm.train()
    algorithm.save_to_path(tmp_path / "run")
    algorithm.stop()
    resumed = Algorithm.from_checkpoint(tmp_path / "run", env=masked.MaskedEnv)
    resumed.train()
    recorded = resumed.record(2)
    save_episodes(
        tmp_path / "recorded",
        recorded.episodes,
        observation_space=recorded.observation_space,
        action_space=recorded.action_space,
    )
    resumed.stop()
    for folder in ("trained", "recorded"):
        found = load_episodes(str(tmp_path / folder)).episodes
        assert len(found) >= 2
        for episode in found:
            mask = episode.extra_model_outputs[Columns.ACTION_MASK]
            assert mask.shape == (masked.LENGTH, 5)
            assert mask[np.arange(masked.LENGTH), episode.actions].all()
    cloned = config(BCConfig, backend).training(
        input_=str(tmp_path / "trained"), train_batch_size=20, lr=0.01
    )
    clone = cloned.training(minibatch_size=None).build_algo()
    losses = [clone.train()["learners/default_policy/policy_loss"] for _ in range(3)]
    clone.stop()
    # Three of five actions are allowed in each row, so that a random choice has log(3) and not log(5).
    assert losses[0] == pytest.approx(np.log(3), abs=0.15)


@pytest.fixture(scope="module")
def observing(backend):
    """A trained algorithm whose observations have the key of the mask."""
    made = config(PPOConfig, backend, source="observation").training(
        train_batch_size=40, minibatch_size=None, num_epochs=1
    )
    algorithm = made.build_algo()
    algorithm.train()
    yield algorithm
    algorithm.stop()


@pytest.mark.parametrize("opened", ["get_policy", "checkpoint", "file"])
def test_policies_take_masks_with_the_observation_or_beside_it(observing, opened, tmp_path):
    policy = observing.get_policy()
    if opened == "checkpoint":
        observing.save_to_path(tmp_path / "run")
        policy = plugrad.load_policy(tmp_path / "run")
    if opened == "file":
        policy = plugrad.load_policy(policy.save(tmp_path / "policy.safetensors"))
    assert policy.observation_space == spaces.Box(0.0, 1.0, (5,), np.float32)
    rng = np.random.default_rng(0)
    shown = rng.random((40, 5), np.float32)
    masks = np.arange(5) != rng.integers(5, size=(40, 1))
    for deterministic in (True, False):
        both = {"action_mask": masks.astype(np.int8), "observations": shown}
        actions, _ = policy.predict(both, deterministic=deterministic)
        assert masks[np.arange(40), actions].all()
        actions, _ = policy.predict(shown, deterministic=deterministic, action_masks=masks)
        assert masks[np.arange(40), actions].all()
    expected = observing._learner.compute_actions(shown, explore=False, action_mask=masks)["actions"]
    np.testing.assert_array_equal(policy.predict(shown, action_masks=masks)[0], expected)
    for n in range(40):
        one, _ = policy.predict({"action_mask": masks[n], "observations": shown[n]})
        assert one == expected[n]
        assert policy.predict(shown[n], action_masks=masks[n].tolist())[0] == expected[n]
    free, _ = policy.predict(shown)
    assert (free != expected).any()


def test_masks_that_predict_cannot_use_are_refused(observing):
    policy, shown = observing.get_policy(), np.zeros(5, np.float32)
    with pytest.raises(BatchError, match=r"'action_mask': expected shape \[1, 5\].*found shape \[1, 4\]"):
        policy.predict(shown, action_masks=[True] * 4)
    with pytest.raises(BatchError, match="at least one allowed action in each row, found none in row 0"):
        policy.predict(shown, action_masks=[False] * 5)
