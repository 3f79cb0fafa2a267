"""DQN, QR-DQN, TD3 and TQC with a memory, as R2D2: by hand and by finite differences, groups, what is hidden, runs."""

from functools import cache
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest
from actor_critics import KINDS, MASK, RECURRENT, dense, recurrent, remembered, sequences
from learning import digest, largest_difference, quick_mode
from test_recurrent_sac import Cue
from threads import on_all

from plugrad import DEFAULT_MODULE_ID, Columns, load_policy
from plugrad.algorithm import Algorithm
from plugrad_dqn import DQNConfig

P = DEFAULT_MODULE_ID
SETTINGS = {
    "dqn": {"dueling": False},
    "qrdqn": {"num_quantiles": 3, "dueling": True},
    "td3": {"policy_delay": 1},
    "tqc": {"num_quantiles": 3, "top_quantiles_to_drop_per_critic": 1},
}
each_kind = pytest.mark.parametrize("kind", SETTINGS)


def made(kind: str, backend: str, **training: Any) -> Any:
    return recurrent(kind, backend, **SETTINGS[kind], **training)


def test_the_loss_is_that_of_networks_that_are_unrolled_step_by_step(backend: str) -> None:
    """Double DQN; both networks begin in the stored state, and see what follows in the state after all before it."""
    learner = made("dqn", backend, lr=0.3).framework(backend, compile=quick_mode(backend)).build_learner()
    rng = np.random.default_rng(3)
    spread = {
        name: rng.normal(scale=0.6, size=each.shape).astype(np.float32)
        for name, each in learner.get_weights()[P].items()
    }
    learner.set_weights({P: spread})
    learner.update(sequences("dqn", seed=6))  # the target network is behind
    weights, target = learner.get_weights()[P], learner.targets[P].get_state()
    assert largest_difference(target, weights) > 0.1
    rows = sequences("dqn")

    def values(of: Any, n: int, obs: Any) -> Any:
        of = {name: np.float64(each) for name, each in of.items()}
        h, c = (rows[Columns.STATE_IN][each][n] for each in "hc")
        x = np.maximum(dense(obs, of, "encoder.0"), 0.0)
        return dense(remembered(of, "encoder.lstm", x, h, c), of, "q.out")

    losses, errors = np.zeros((2, 2, 4))
    for n, (obs, later) in enumerate(zip(rows[Columns.OBS], rows[Columns.NEXT_OBS], strict=True)):
        unrolled = np.concatenate([obs[:1], later])
        best = values(weights, n, unrolled)[1:].argmax(-1)
        after = values(target, n, unrolled)[1:][np.arange(4), best]
        wanted = rows[Columns.REWARDS][n] + 0.9 * ~rows[Columns.TERMINATEDS][n] * after
        errors[n] = values(weights, n, obs)[np.arange(4), rows[Columns.ACTIONS][n]] - wanted
        size = abs(errors[n])
        losses[n] = np.where(size <= 1.0, 0.5 * size**2, size - 0.5)
    found = learner.update(rows)[P]
    assert found["td_error_mean_abs"] == pytest.approx(abs(errors)[MASK].mean(), rel=1e-4)
    assert found["total_loss"] == pytest.approx(losses[MASK].mean(), rel=1e-4)


@cache
def by_finite_differences(kind: str) -> tuple[Any, Any]:
    learner = made(kind, "numpy", optimizer={"type": "sgd"}).build_learner()
    start = learner.get_weights()
    learner.update(sequences(kind))
    return start, learner.get_weights()


@pytest.mark.cross_product
@each_kind
def test_an_update_is_that_of_finite_differences(kind: str, backend: str) -> None:
    config = made(kind, backend, optimizer={"type": "sgd"}).framework(backend, compile=quick_mode(backend))
    learner = config.build_learner()
    start, expected = by_finite_differences(kind)
    assert largest_difference(start, expected) > 1e-3
    learner.update(sequences(kind))
    assert largest_difference(learner.get_weights(), expected) < 1e-5


@needs.backends("torch")
@pytest.mark.cross_product(part=2)
@each_kind
def test_burn_in_counts_for_the_state_alone_and_padding_for_nothing(kind: str) -> None:
    def weights_after(column: str, sequence: int, step: int) -> Any:
        learner, rows = made(kind, "torch").build_learner(), sequences(kind)
        if column:
            rows[column] = np.array(rows[column])
            rows[column][sequence, step] += 5.0
        learner.update(rows)
        return learner.get_weights()

    plain = weights_after("", 0, 0)
    for hidden in ((Columns.REWARDS, 0, 0), (Columns.REWARDS, 1, 3), (Columns.OBS, 1, 3)):
        assert largest_difference(weights_after(*hidden), plain) == 0.0
    assert largest_difference(weights_after(Columns.OBS, 0, 0), plain) > 1e-4


@needs.backends("torch")
@pytest.mark.cross_product(part=2)
@each_kind
def test_two_learners_are_one(kind: str) -> None:
    """In threads; tests/group has remote ones."""
    config = made(kind, "torch", minibatch_size=6, num_epochs=2)
    one, *two = (config.build_learner() for _ in range(3))
    rows = sequences(kind, copies=3)
    losses = on_all(two, lambda learner: learner.update(rows)[P]["total_loss"], timeout_s=120)
    np.testing.assert_allclose(losses, [one.update(rows)[P]["total_loss"]] * 2, rtol=1e-4, atol=1e-4)
    assert largest_difference(two[0].get_weights(), one.get_weights()) < 1e-5


@needs.backends("torch")
def test_a_resumed_run_of_r2d2_equals_one_that_was_never_stopped(tmp_path: Path) -> None:
    replay = {"train_batch_size": 12, "minibatch_size": 6, "num_steps_sampled_before_learning_starts": 20}
    config = DQNConfig().framework("torch", compile="none").debugging(seed=0)
    config = config.environment(Cue, env_config={"discrete": True}).rl_module(model_config=RECURRENT)
    config = config.env_runners(rollout_fragment_length=7, num_envs_per_env_runner=2)
    config = config.training(**replay, burn_in_len=1, replay_buffer_config={"type": "prioritized"})
    whole = config.build_algo()
    start = whole.learner_group.get_weights()
    for _ in range(2):
        whole.train()
    whole.save_to_path(tmp_path / "run")
    resumed = Algorithm.from_checkpoint(tmp_path / "run", env=Cue)
    for algorithm in (whole, resumed):
        algorithm.train()
    assert digest(resumed.learner_group.get_weights()) == digest(whole.learner_group.get_weights())
    assert largest_difference(whole.learner_group.get_weights(), start) > 1e-4

    policy, states = whole.get_policy(), [None, None]
    policy.save(tmp_path / "policy.safetensors")
    loaded = load_policy(tmp_path / "policy.safetensors")
    for obs in np.random.default_rng(0).normal(size=(3, 1, 3)).astype(np.float32):
        (action, states[0]), (other, states[1]) = (
            policy.predict(obs, states[0]),
            loaded.predict(obs, states[1]),
        )
        assert action == other
    assert {*states[1]} == {*states[0]} == {"h", "c"}
    for algorithm in (whole, resumed):
        algorithm.stop()


@needs.backends("torch")
@pytest.mark.parametrize("kind", ["dqn", "qrdqn", "td3", "tqc"])
def test_what_is_shown_once_is_remembered(kind: str) -> None:
    """Of four steps, the first alone shows what to do; without a memory one of them is right, and others by chance."""

    def trained(**memory: Any) -> float:
        cls, discrete = KINDS[kind][0], "dqn" in kind
        config = cls().framework("torch", compile="none").debugging(seed=0)
        config = config.environment(Cue, env_config={"discrete": discrete})
        config = config.rl_module(model_config={"fcnet_hiddens": [16], "max_seq_len": 4, **memory})
        config = config.env_runners(rollout_fragment_length=8, num_envs_per_env_runner=4)
        explores = {"epsilon": 0.2, "target_network_update_freq": 64} if discrete else {}
        replay = {"train_batch_size": 256, "minibatch_size": 64, "gamma": 0.5, "lr": 0.01, **explores}
        algorithm = config.training(num_steps_sampled_before_learning_starts=64, **replay).build_algo()
        for _ in range(12):
            algorithm.train()
        found = algorithm.evaluate(num_episodes=40)["episode_return_mean"]
        algorithm.stop()
        return float(found)

    assert trained(use_gru=True, gru_cell_size=8) > 3.0
    if kind == "dqn":
        assert trained() < 2.0
