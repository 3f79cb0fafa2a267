"""DQN: its loss by hand, equal on every backend, exploration, target networks, a task that needs planning, resuming."""

from functools import cache

import gymnasium as gym
import needs
import numpy as np
import pytest
from learning import OBSERVATIONS, TWO_ACTIONS, digest, largest_difference, ppo_batch

from plugrad import DEFAULT_MODULE_ID, Columns
from plugrad.algorithm import Algorithm
from plugrad.errors import BatchError, ConfigError
from plugrad_dqn import DQNConfig
from plugrad_dqn.exploration import epsilon_greedy_logits

P = DEFAULT_MODULE_ID


def config(backend: str, *, compile: str = "none", **training) -> DQNConfig:
    return (
        DQNConfig()
        .framework(backend, compile=compile)
        .environment(observation_space=OBSERVATIONS, action_space=TWO_ACTIONS)
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .training(**{"minibatch_size": None, "num_epochs": 2, "lr": 0.01, **training})
        .debugging(seed=1)
    )


def batch(rows: int = 16, **columns) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        Columns.OBS: ppo_batch(rows)[Columns.OBS],
        Columns.ACTIONS: rng.integers(2, size=rows),
        Columns.REWARDS: rng.normal(scale=2.0, size=rows).astype(np.float32),
        Columns.NEXT_OBS: rng.normal(size=(rows, 3)).astype(np.float32),
        Columns.TERMINATEDS: rng.random(rows) < 0.3,
        **columns,
    }


PLENTY = {
    "n_step": np.tile([1.0, 2.0, 3.0, 3.0], 4).astype(np.float32),
    Columns.WEIGHTS: np.linspace(0.1, 1.0, 16, dtype=np.float32),
}

# --- the loss ---


@pytest.mark.parametrize("double_q", [False, True])
@pytest.mark.parametrize("columns", [{}, PLENTY], ids=["plain", "n steps and weights"])
def test_the_loss_is_that_of_the_papers(double_q, columns):
    learner = config("numpy", double_q=double_q, gamma=0.9, huber_delta=0.7, dueling=False).build_learner()
    learner.update(batch(), num_epochs=5)  # the target network stays behind: 16 rows are not 500
    rows = batch(**columns)
    module, everyone = learner.module[P], np.arange(16)
    q = module.forward_train({Columns.OBS: rows[Columns.OBS]})["qf_preds"]
    following = {Columns.OBS: rows[Columns.NEXT_OBS]}
    present = module.forward_train(following)["qf_preds"]
    target = learner.targets[P].forward(following)["qf_preds"]
    assert np.abs(present - target).max() > 0.01
    value = target[everyone, (present if double_q else target).argmax(-1)]
    discount = 0.9 ** columns.get("n_step", np.ones(16))
    wanted = rows[Columns.REWARDS] + discount * ~rows[Columns.TERMINATEDS] * value
    errors = np.abs(q[everyone, rows[Columns.ACTIONS]] - wanted)
    huber = np.where(errors <= 0.7, 0.5 * errors**2, 0.7 * (errors - 0.35))
    expected = np.mean(columns.get(Columns.WEIGHTS, 1.0) * huber)
    results = learner.update(rows, num_epochs=1)[P]
    assert results["total_loss"] == pytest.approx(expected, rel=1e-4)
    assert results["td_error_mean_abs"] == pytest.approx(errors.mean(), rel=1e-4)


def test_reported_values_are_of_the_actions_that_were_taken_in_the_rows_that_count(backend):
    learner = (
        config(backend, minibatch_size=None, dueling=False).framework(backend, compile="none").build_learner()
    )
    rows = batch(loss_mask=np.arange(16) < 12)
    fwd_out = learner.module[P].forward_train(learner._convert_batch_type({Columns.OBS: rows[Columns.OBS]}))
    q = learner._convert_to_numpy(fwd_out["qf_preds"])[np.arange(16), rows[Columns.ACTIONS]][:12]
    results = learner.update(rows, num_epochs=1)[P]
    found = [results[name] for name in ("qf_mean", "qf_min", "qf_max")]
    assert found == pytest.approx([q.mean(), q.min(), q.max()], rel=1e-5)
    assert results["qf_loss"] == results["total_loss"]
    assert results["td_error_mean"] == results["td_error_mean_abs"]


def test_a_dueling_network_is_value_plus_centred_advantages():
    learner = config("numpy", dueling=True).build_learner()
    assert list(learner.get_weights()[P]) == [
        *("encoder.0.weight", "encoder.0.bias"),
        *("value.out.weight", "value.out.bias", "advantage.out.weight", "advantage.out.bias"),
    ]
    weights = {name: np.float64(values) for name, values in learner.get_weights()[P].items()}
    obs = batch()[Columns.OBS]
    features = np.maximum(0.0, obs @ weights["encoder.0.weight"] + weights["encoder.0.bias"])
    advantages = features @ weights["advantage.out.weight"]
    expected = features @ weights["value.out.weight"] + advantages - advantages.mean(-1, keepdims=True)
    found = learner.compute_actions(obs, explore=False)[Columns.ACTION_DIST_INPUTS]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@cache
def updated(backend: str, variant: bool, compile: str = "none"):
    """Two updates of two steps; between them the target network moves."""
    settings = {"double_q": variant, "dueling": variant, "tau": 0.5 if variant else 1.0}
    learner = config(backend, compile=compile, target_network_update_freq=0, **settings).build_learner()
    learner.update(batch(**PLENTY))
    return learner, learner.update(batch(**PLENTY))


@pytest.mark.parametrize(("variant", "compile"), [(False, "none"), (True, "none"), (True, "complete_update")])
def test_every_backend_computes_the_same_within_1e_5(backend, variant, compile):
    (one, results), (other, expected) = updated(backend, variant, compile), updated("numpy", variant)
    assert largest_difference(one.get_weights(), other.get_weights()) < 1e-5
    assert largest_difference(one.targets[P].get_state(), other.targets[P].get_state()) < 1e-5
    assert results[P] == pytest.approx(expected[P], rel=1e-4, abs=1e-5)


@needs.backends("torch", "tf2", "jax")
def test_after_320_gradient_steps_backends_agree_within_1e_5():
    settings = {"minibatch_size": 16, "num_epochs": 20, "shuffle_batch_per_epoch": True, "lr": 1e-3}
    found = []
    for backend in ("torch", "tf2", "jax"):
        chosen = config(backend, compile="auto", dueling=True, **settings)
        learner = chosen.rl_module(model_config={"fcnet_hiddens": [32, 32]}).build_learner()
        start = learner.get_weights()
        learner.update(batch(256))
        found.append(learner.get_weights())
        assert largest_difference(found[-1], start) > 0.05
        assert largest_difference(found[-1], found[0]) < 1e-5


def test_columns_that_would_broadcast_are_refused():
    learner = config("numpy").build_learner()
    for column in (Columns.REWARDS, Columns.TERMINATEDS, Columns.WEIGHTS, "n_step"):
        rows = batch(**PLENTY)
        rows[column] = rows[column][:, None]
        with pytest.raises(BatchError, match=rf"'{column}': expected one number per row, shape \[16\]"):
            learner.update(rows)


# --- target networks ---


def test_the_target_network_follows_by_environment_steps_or_by_rows_if_nobody_counts_those():
    learner = config("numpy", target_network_update_freq=100, num_epochs=1).build_learner()

    def is_equal() -> bool:
        return largest_difference(learner.targets[P].get_state(), learner.get_weights()[P]) == 0.0

    found = []
    for steps in (40, 99, 100, 180, 250):
        learner.update(batch(), timesteps={"num_env_steps_sampled_lifetime": steps})
        found.append(is_equal())
    assert found == [False, False, True, False, True]

    learner = config("numpy", target_network_update_freq=40, num_epochs=1).build_learner()
    found = []
    for _ in range(6):
        learner.update(batch())
        found.append(is_equal())
    assert found == [False, False, True, False, False, True]


# --- exploration ---


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_exploration_is_epsilon_greedy(epsilon):
    values = np.array([[1.0, 3.0, 2.0], [0.0, -1.0, -2.0]])
    expected = np.full((2, 3), epsilon / 3)
    expected[[0, 1], [1, 0]] += 1.0 - epsilon
    np.testing.assert_allclose(np.exp(epsilon_greedy_logits(values, epsilon)), expected, rtol=1e-6)


def test_epsilon_follows_its_schedule_and_acting_follows_epsilon(backend):
    learner = config(backend, epsilon=[[0, 1.0], [1000, 0.0]]).build_learner()
    obs = np.tile([[0.5, -1.0, 2.0]], (2000, 1)).astype(np.float32)
    greedy = learner.compute_actions(obs, explore=False)[Columns.ACTIONS]
    assert len(set(greedy)) == 1
    for steps, share in ((0, 0.5), (600, 0.8), (1000, 1.0)):
        results = learner.update(batch(), timesteps={"num_env_steps_sampled_lifetime": steps})[P]
        assert results["epsilon"] == pytest.approx(1.0 - steps / 1000)
        best = learner.compute_actions(obs[:1], explore=False)[Columns.ACTIONS][0]
        acted = learner.compute_actions(obs)
        assert np.mean(acted[Columns.ACTIONS] == best) == pytest.approx(share, abs=0.05)
        if share == 1.0:
            assert (acted[Columns.ACTION_LOGP] == 0.0).all()


# --- learning ---


class Corridor(gym.Env):
    """Six cells; the way back to the first is one step, the reward is at the end: luck takes 2 ** 5 tries."""

    observation_space = gym.spaces.Box(0, 1, (6,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = self.time = 0
        return self._observation(), {}

    def step(self, action):
        self.cell, self.time = (self.cell + 1 if action == 1 else 0), self.time + 1
        arrived = self.cell == 5
        return self._observation(), float(arrived), arrived, self.time == 20, {}

    def _observation(self):
        return np.eye(6, dtype=np.float32)[self.cell]


VARIANTS = {
    "plain": {"double_q": False, "dueling": False},
    "all": {"n_step": 3, "replay_buffer_config": {"type": "prioritized"}},
}


def corridor(backend: str, **training) -> DQNConfig:
    return (
        DQNConfig()
        .environment(Corridor)
        .framework(backend)
        .rl_module(model_config={"fcnet_hiddens": [32]})
        .training(
            gamma=0.8,
            train_batch_size=1024,
            epsilon=[[0, 1.0], [2000, 0.1]],
            target_network_update_freq=100,
            num_steps_sampled_before_learning_starts=512,
            **training,
        )
        .debugging(seed=0)
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_way_through_a_corridor_is_found(backend, variant):
    algorithm = corridor(backend, **VARIANTS[variant]).build_algo()
    assert algorithm.evaluate()["episode_return_mean"] == 0.0
    for _ in range(25):
        results = algorithm.train()
    assert results["num_env_steps_sampled_lifetime"] == 25 * 128
    assert algorithm.evaluate()["episode_return_mean"] == 1.0
    values = algorithm._learner.compute_actions(np.eye(6, dtype=np.float32)[:5], explore=False)
    best = values[Columns.ACTION_DIST_INPUTS].max(-1)
    assert (np.diff(best) > 0.05).all()
    if variant == "plain":  # sums of several rewards have the turns of exploration in them
        np.testing.assert_allclose(best, 0.8 ** np.arange(4, -1, -1), atol=0.1)


def test_nothing_is_learned_before_there_is_enough_and_then_as_much_as_asked_for():
    settings = {
        "minibatch_size": 8,
        "training_intensity": 0.6,
        "num_steps_sampled_before_learning_starts": 100,
    }
    algorithm = corridor("numpy").training(**settings).rl_module(model_config={"fcnet_hiddens": [1]})
    algorithm = algorithm.env_runners(num_envs_per_env_runner=4, rollout_fragment_length=10).build_algo()
    trained = [algorithm.train().get(f"learners/{P}/num_module_steps_trained") for _ in range(4)]
    assert trained == [None, None, 24, 24]  # 0.6 * 40 rows, in minibatches of 8


# --- resuming ---


def test_a_resumed_run_equals_one_that_was_never_stopped(backend, tmp_path):
    whole = corridor(backend, **VARIANTS["all"]).build_algo()
    for _ in range(7):
        whole.train()
    whole.save_to_path(tmp_path)
    resumed = Algorithm.from_checkpoint(tmp_path, env=Corridor)
    for algorithm in (whole, resumed):
        for _ in range(3):
            algorithm.train()
    assert digest(resumed._training.get_state()) == digest(whole._training.get_state())
    assert digest(resumed._learner.get_state()) == digest(whole._learner.get_state())


def test_a_replay_buffer_that_is_not_to_be_saved_begins_empty(tmp_path):
    config = corridor("numpy", checkpoint_replay=False, n_step=2)
    first = config.training(num_steps_sampled_before_learning_starts=10_000).build_algo()
    first.train()
    first.save_to_path(tmp_path)
    resumed = Algorithm.from_checkpoint(tmp_path, env=Corridor)
    resumed.train()
    assert [len(each._training._buffers[P]) for each in (first, resumed)] == [120, 128]


# --- settings ---


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"capcity": 10}, r"replay_buffer_config has no 'capcity'; .* Did you mean 'capacity'\?"),
        (
            {"type": "prioritised"},
            r"type='prioritised'; there are uniform, prioritized. Did you mean 'prioritized'\?",
        ),
        ({"capacity": 0}, "capacity=0: must be 1 or more rows"),
        ({"alpha": 2}, "alpha=2: must be from 0 to 1"),
        ({"save": 1}, "save=1: must be true or false"),
    ],
)
def test_a_replay_buffer_that_cannot_be_is_refused_when_it_is_typed(settings, said):
    with pytest.raises(ConfigError, match=said):
        DQNConfig().training(replay_buffer_config=settings)


def test_what_dqn_cannot_do_is_said():
    with pytest.raises(ConfigError, match="DQN needs a Discrete action space, found Box"):
        DQNConfig().environment("Pendulum-v1").build_learner()
    with pytest.raises(
        ConfigError, match="minibatch_size=64 is above train_batch_size=32, which counts the rows of all"
    ):
        DQNConfig().environment("CartPole-v1").training(train_batch_size=32).build_algo()
