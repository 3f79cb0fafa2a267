"""QR-DQN and TQC: their losses by hand, where gradients flow, what is refused, prioritised replay."""

from copy import deepcopy

import gymnasium as gym
import numpy as np
import pytest
from learning import OBSERVATIONS, TWO_ACTIONS, digest, largest_difference, ppo_batch

from plugrad import DEFAULT_MODULE_ID, Columns
from plugrad.errors import BatchError, ConfigError
from plugrad_qrdqn import QRDQNConfig
from plugrad_tqc import TQCConfig

P = DEFAULT_MODULE_ID
ROWS, GAMMA, N = 8, 0.9, 3
BOX = gym.spaces.Box(-2.0, 2.0, (2,), np.float32)
CONFIGS = {"qrdqn": (QRDQNConfig, TWO_ACTIONS), "tqc": (TQCConfig, BOX)}
each_kind = pytest.mark.parametrize("kind", CONFIGS)


def config(kind, backend="numpy", **training):
    made, actions = CONFIGS[kind]
    settings = {"minibatch_size": None, "num_epochs": 1, "lr": 0.05, "gamma": GAMMA, "num_quantiles": N}
    return (
        made()
        .framework(backend, compile="none")
        .environment(observation_space=OBSERVATIONS, action_space=actions)
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .training(**{**settings, **training})
        .debugging(seed=1)
    )


def batch(kind, **columns):
    rng = np.random.default_rng(5)
    discrete = kind == "qrdqn"
    return {
        Columns.OBS: ppo_batch(ROWS)[Columns.OBS],
        Columns.ACTIONS: rng.integers(2, size=ROWS)
        if discrete
        else rng.uniform(-2, 2, (ROWS, 2)).astype("f4"),
        Columns.REWARDS: rng.normal(scale=2.0, size=ROWS).astype(np.float32),
        Columns.NEXT_OBS: rng.normal(size=(ROWS, 3)).astype(np.float32),
        Columns.TERMINATEDS: rng.random(ROWS) < 0.3,
        **columns,
    }


PLENTY = {
    Columns.N_STEP: np.tile([1.0, 2.0, 3.0, 3.0], 2).astype(np.float32),
    Columns.WEIGHTS: np.linspace(0.1, 1.0, ROWS, dtype=np.float32),
}
each_plenty = pytest.mark.parametrize("columns", [{}, PLENTY], ids=["plain", "n steps and weights"])


def quantile_huber(quantiles, targets, kappa=1.0):
    """Of one row, by loops."""
    total = 0.0
    for i, quantile in enumerate(quantiles):
        for target in targets:
            u = target - quantile
            huber = 0.5 * u * u if abs(u) <= kappa else kappa * (abs(u) - 0.5 * kappa)
            total += abs((i + 0.5) / len(quantiles) - (u < 0)) * huber / kappa / len(targets)
    return total


def with_a_past(kind, **training):
    """The target network stays behind."""
    learner = config(kind, tau=0.05, **training).build_learner()
    for _ in range(2):
        learner.update(batch(kind))
    return learner


@pytest.mark.parametrize("double_q", [False, True])
@each_plenty
def test_the_loss_of_qrdqn_is_that_of_the_paper(double_q, columns):
    learner = with_a_past("qrdqn", double_q=double_q, huber_delta=0.7, target_network_update_freq=0)
    rows, module = batch("qrdqn", **columns), learner.module[P]
    of = lambda forward, name: forward({Columns.OBS: rows[name]})["qf_quantiles"]  # noqa: E731
    quantiles, later = of(module.forward_train, Columns.OBS), of(learner.targets[P].forward, Columns.NEXT_OBS)
    assert quantiles.shape == (ROWS, 2, N)
    present = of(module.forward_train, Columns.NEXT_OBS)
    assert np.abs(present - later).max() > 0.01
    losses, errors = [], []
    for n in range(ROWS):
        best = (present if double_q else later)[n].mean(-1).argmax()
        discount = GAMMA ** columns.get(Columns.N_STEP, np.ones(ROWS))[n] * (not rows[Columns.TERMINATEDS][n])
        targets = rows[Columns.REWARDS][n] + discount * later[n, best]
        taken = quantiles[n, rows[Columns.ACTIONS][n]]
        losses.append(quantile_huber(taken, targets, 0.7))
        errors.append(abs(taken.mean() - targets.mean()))
    results = learner.update(rows)[P]
    expected = np.mean(columns.get(Columns.WEIGHTS, 1.0) * np.array(losses))
    assert results["total_loss"] == pytest.approx(expected, rel=1e-4)
    assert results["td_error_mean"] == pytest.approx(np.mean(errors), rel=1e-4)


@each_plenty
def test_the_loss_of_tqc_is_that_of_the_paper(columns):
    learner = with_a_past("tqc", top_quantiles_to_drop_per_critic=1)
    rows, module = batch("tqc", **columns), learner.module[P]
    shapes = learner.get_noise_columns(P)
    drawn = deepcopy(learner.stream(P, "noise")).standard_normal(ROWS * 2 * len(shapes), np.float32)
    noise = {name: x.reshape(ROWS, 2) for name, x in zip(shapes, np.split(drawn, len(shapes)), strict=True)}
    alpha = float(np.exp(learner.get_weights()[P]["log_alpha"]))

    def drawn_actions(obs, z):
        inputs = module.forward_train({Columns.OBS: obs})[Columns.ACTION_DIST_INPUTS]
        return module.get_train_action_dist_cls().from_logits(inputs).rsample_with_logp(z)

    actions, logp = drawn_actions(rows[Columns.NEXT_OBS], noise["next_policy_noise"])
    chosen = {Columns.OBS: rows[Columns.NEXT_OBS], "policy_actions": actions}
    later = learner.targets[P].forward(chosen)["qf_quantiles"]
    quantiles = module.forward_train(rows)["qf_quantiles"]
    assert quantiles.shape == later.shape == (2, ROWS, N)
    losses, errors = [], []
    for n in range(ROWS):
        kept = np.sort(later[:, n].ravel())[: 2 * N - 2] - alpha * logp[n]
        discount = GAMMA ** columns.get(Columns.N_STEP, np.ones(ROWS))[n] * (not rows[Columns.TERMINATEDS][n])
        targets = rows[Columns.REWARDS][n] + discount * kept
        losses.append(sum(quantile_huber(quantiles[i, n], targets) / N for i in range(2)))
        errors.append(abs(quantiles[:, n].mean() - targets.mean()))
    actions, logp = drawn_actions(rows[Columns.OBS], noise["policy_noise"])
    chosen = {Columns.OBS: rows[Columns.OBS], "policy_actions": actions}
    values = module.forward_train(chosen)["qf_quantiles"].mean((0, 2))
    results = learner.update(rows)[P]
    critics = np.mean(columns.get(Columns.WEIGHTS, 1.0) * np.array(losses))
    assert results["qf_loss"] == pytest.approx(critics, rel=1e-4)
    assert results["td_error_mean"] == pytest.approx(np.mean(errors), rel=1e-4)
    assert results["policy_loss"] == pytest.approx(np.mean(alpha * logp - values), rel=1e-4, abs=1e-6)
    total = results["qf_loss"] + results["policy_loss"] + results["alpha_loss"]
    assert results["total_loss"] == pytest.approx(total, rel=1e-5)


@each_kind
def test_columns_that_would_broadcast_are_refused_and_change_nothing(kind):
    learner = config(kind).build_learner()
    before = digest(learner.get_state())
    for column in (Columns.REWARDS, Columns.TERMINATEDS, Columns.WEIGHTS, Columns.N_STEP):
        rows = batch(kind, **PLENTY)
        rows[column] = rows[column][:, None]
        with pytest.raises(BatchError, match=rf"'{column}': expected one number per row, shape \[{ROWS}\]"):
            learner.update(rows)
    assert digest(learner.get_state()) == before


def test_qrdqn_takes_no_forbidden_action_into_its_targets():
    rows = batch("qrdqn")
    found = []
    for allowed in ([True, True], [True, False], [False, True]):
        learner = with_a_past("qrdqn")
        masks = {each: np.tile(allowed, (ROWS, 1)) for each in (Columns.NEXT_ACTION_MASK,)}
        found.append(learner.update({**rows, **masks})[P]["total_loss"])
    assert len(set(found)) == 3


def test_a_quantile_network_acts_by_the_means_and_needs_no_quantiles_of_other_weights():
    learner = config("qrdqn", dueling=True).build_learner()
    assert {"value.out.weight", "advantage.out.weight"} < {*learner.get_weights()[P]}
    rows = {Columns.OBS: batch("qrdqn")[Columns.OBS]}
    outputs = learner.module[P].forward_train(rows)
    acted = learner.compute_actions(rows[Columns.OBS], explore=False)
    np.testing.assert_array_equal(acted[Columns.ACTIONS], outputs["qf_quantiles"].mean(-1).argmax(-1))


def test_what_leaves_no_quantile_or_is_another_space_is_refused():
    with pytest.raises(ConfigError, match=r"drop_per_critic=3 leaves none of num_quantiles=3: drop fewer"):
        config("tqc", top_quantiles_to_drop_per_critic=3).build_learner()
    with pytest.raises(ConfigError, match="TQC needs a bounded Box action space"):
        config("tqc").environment(action_space=TWO_ACTIONS).build_learner()
    with pytest.raises(ConfigError, match="QRDQN needs a Discrete action space"):
        config("qrdqn").environment(action_space=BOX).build_learner()


@each_kind
def test_rows_are_prioritised_by_the_errors_of_the_means(kind, backend):
    """The suite compares all else on every backend."""
    task = {"qrdqn": "CartPole-v1", "tqc": "Pendulum-v1"}[kind]
    made = CONFIGS[kind][0]().framework(backend, compile="none").environment(task).debugging(seed=0)
    made = made.rl_module(model_config={"fcnet_hiddens": [4]}).env_runners(rollout_fragment_length=16)
    algorithm = made.training(
        train_batch_size=16,
        minibatch_size=16,
        num_quantiles=N,
        num_steps_sampled_before_learning_starts=16,
        replay_buffer_config={"type": "prioritized", "capacity": 256},
    ).build_algo()
    before = algorithm.learner_group.get_weights()
    algorithm.train()
    rows, _ = algorithm._training._buffers[P].sample(1000)
    assert len(set(rows[Columns.WEIGHTS].round(6))) > 3
    assert largest_difference(algorithm.learner_group.get_weights(), before) > 0.0
    algorithm.stop()
