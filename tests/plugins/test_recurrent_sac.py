"""SAC with a memory: losses by hand and by finite differences, groups, acting, resuming, what is hidden and refused."""

from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest
from actor_critics import MASK, RECURRENT, dense, q_values, recurrent, remembered, sequences
from learning import OBSERVATIONS, digest, largest_difference, quick_mode
from threads import on_all

from plugrad import DEFAULT_MODULE_ID, Columns, load_policy
from plugrad.algorithm import Algorithm
from plugrad.errors import BatchError, ConfigError
from plugrad_offline import CQLConfig, IQLConfig
from plugrad_sac import SACConfig

P = DEFAULT_MODULE_ID
each_kind = pytest.mark.parametrize("kind", ["sac", "sac discrete"])


def spread(learner: Any) -> None:
    """Other weights than those of the beginning, and a target network that is behind."""
    rng = np.random.default_rng(3)
    weights = {
        name: rng.normal(scale=0.4, size=each.shape) for name, each in learner.get_weights()[P].items()
    }
    learner.set_weights({P: {name: each.astype(np.float32) for name, each in weights.items()}})
    learner.update(sequences("sac discrete", seed=6))


# --- equal numbers ---


def test_the_loss_is_the_masked_mean_of_one_that_is_computed_step_by_step(backend: str) -> None:
    learner = recurrent("sac discrete", backend, tau=0.5).build_learner()
    spread(learner)
    rows, weights = (
        sequences("sac discrete"),
        {name: np.float64(w) for name, w in learner.get_weights()[P].items()},
    )
    target = {**weights, **{name: np.float64(w) for name, w in learner.targets[P].get_state().items()}}
    assert largest_difference(target, weights) > 1e-3

    def policy(n: int, obs: Any) -> Any:
        h, c = (rows[Columns.STATE_IN][f"pi_{each}"][n] for each in "hc")
        x = np.maximum(dense(obs, weights, "pi.0"), 0.0)
        logits = dense(remembered(weights, "pi.lstm", x, h, c), weights, "pi.out")
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    def values(n: int, obs: Any, of: Any) -> Any:
        h, c = (rows[Columns.STATE_IN][f"qf_{each}"][n] for each in "hc")
        return q_values(of, np.concatenate([obs, remembered(of, "qf.lstm", obs, h, c)], -1))

    alpha, critic, actor, entropies = np.exp(weights["log_alpha"]), [], [], []
    for n, (obs, later) in enumerate(zip(rows[Columns.OBS], rows[Columns.NEXT_OBS], strict=True)):
        unrolled = np.concatenate([obs[:1], later])
        next_logp, next_q = policy(n, unrolled)[1:], values(n, unrolled, target)[:, 1:].min(0)
        soft = (np.exp(next_logp) * (next_q - alpha * next_logp)).sum(-1)
        q, logp = values(n, obs, weights), policy(n, obs)
        wanted = rows[Columns.REWARDS][n] + 0.9 * ~rows[Columns.TERMINATEDS][n] * soft
        taken = q[:, np.arange(4), rows[Columns.ACTIONS][n]]
        critic.append(0.5 * np.square(taken - wanted).sum(0))
        actor.append((np.exp(logp) * (alpha * logp - q.min(0))).sum(-1))
        entropies.append(-(np.exp(logp) * logp).sum(-1))
    mean = lambda each: np.array(each)[MASK].mean()  # noqa: E731
    temperature = weights["log_alpha"] * (mean(entropies) - 0.98 * np.log(3.0))
    found = learner.update(rows)[P]
    assert found["qf_loss"] == pytest.approx(2.0 * mean(critic), rel=1e-4)
    assert found["policy_loss"] == pytest.approx(mean(actor), rel=1e-4)
    assert found["total_loss"] == pytest.approx(mean(critic) + mean(actor) + temperature, rel=1e-4)


@cache
def by_finite_differences(kind: str) -> tuple[Any, Any]:
    learner = recurrent(kind, "numpy", optimizer={"type": "sgd"}).build_learner()
    start = learner.get_weights()
    learner.update(sequences(kind))
    return start, learner.get_weights()


@each_kind
def test_an_update_is_that_of_finite_differences(kind: str, backend: str) -> None:
    made = recurrent(kind, backend, optimizer={"type": "sgd"}).framework(backend, compile=quick_mode(backend))
    learner = made.build_learner()
    start, expected = by_finite_differences(kind)
    assert largest_difference(start, expected) > 1e-3
    learner.update(sequences(kind))
    assert largest_difference(learner.get_weights(), expected) < 1e-5


@needs.backends("torch")
def test_two_learners_are_one() -> None:
    """In threads; tests/group has remote ones on every backend."""
    made = recurrent("sac", "torch", minibatch_size=6, num_epochs=2)
    one, *two = (made.build_learner() for _ in range(3))
    batches = [sequences("sac", seed, copies=3) for seed in range(2)]

    def learn(learner: Any) -> Any:
        return [learner.update(each)[P]["total_loss"] for each in batches]

    losses = on_all(two, learn, timeout_s=120)
    np.testing.assert_allclose(losses, [learn(one)] * 2, rtol=1e-4, atol=1e-4)
    assert largest_difference(two[0].get_weights(), one.get_weights()) < 1e-5
    assert largest_difference(two[0].targets[P].get_state(), one.targets[P].get_state()) < 1e-5


def test_burn_in_counts_for_the_state_alone_and_padding_for_nothing(backend: str) -> None:
    def weights_after(column: str, sequence: int, step: int) -> Any:
        learner = recurrent("sac", backend).build_learner()
        rows = sequences("sac")
        if column:
            rows[column] = np.array(rows[column])
            rows[column][sequence, step] += 5.0
        learner.update(rows)
        return learner.get_weights()

    plain = weights_after("", 0, 0)
    for hidden in ((Columns.REWARDS, 0, 0), (Columns.REWARDS, 1, 3), (Columns.OBS, 1, 3)):
        assert largest_difference(weights_after(*hidden), plain) == 0.0
    assert largest_difference(weights_after(Columns.OBS, 0, 0), plain) > 1e-4


# --- runs ---


class Cue(gym.Env):
    """The cue is shown in the first of four steps, and its sign is to be said in each."""

    observation_space = OBSERVATIONS

    def __init__(self, discrete: bool = False) -> None:
        self.action_space = (
            gym.spaces.Discrete(2) if discrete else gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.cue = 0, self.np_random.choice([-1.0, 1.0])
        return np.array([self.cue, 0.0, 1.0], np.float32), {}

    def step(self, action):
        self.steps += 1
        said = float(np.sum(action)) * (2.0 if isinstance(self.action_space, gym.spaces.Discrete) else 1.0)
        said -= 1.0 if isinstance(self.action_space, gym.spaces.Discrete) else 0.0
        return np.zeros(3, np.float32), said * self.cue, self.steps == 4, False, {}


def run_config(backend: str, **settings: Any) -> Any:
    replay = {"train_batch_size": 12, "minibatch_size": 6, "num_steps_sampled_before_learning_starts": 20}
    return (
        SACConfig()
        .framework(backend, compile=quick_mode(backend))
        .environment(Cue, env_config={"discrete": bool(settings)})
        .rl_module(model_config=RECURRENT)
        .env_runners(rollout_fragment_length=7, num_envs_per_env_runner=2)
        .training(**replay, burn_in_len=1, random_steps=10, **settings)
        .debugging(seed=0)
    )


@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
def test_a_resumed_run_equals_one_that_was_never_stopped(backend: str, kind: str, tmp_path: Path) -> None:
    settings = {} if kind == "uniform" else {"replay_buffer_config": {"type": kind}}
    whole = run_config(backend, **settings).build_algo()
    start = whole.learner_group.get_weights()
    for _ in range(2):
        whole.train()
    whole.save_to_path(tmp_path / "run")
    resumed = Algorithm.from_checkpoint(tmp_path / "run", env=Cue)
    for algorithm in (whole, resumed):
        algorithm.train()
    assert digest(resumed.learner_group.get_weights()) == digest(whole.learner_group.get_weights())
    assert largest_difference(whole.learner_group.get_weights(), start) > 1e-4

    policy = whole.get_policy()
    policy.save(tmp_path / "policy.safetensors")
    loaded, states = load_policy(tmp_path / "policy.safetensors"), [None, None]
    for obs in np.random.default_rng(0).normal(size=(3, 1, 3)).astype(np.float32):
        (action, states[0]), (other, states[1]) = (
            policy.predict(obs, states[0]),
            loaded.predict(obs, states[1]),
        )
        np.testing.assert_allclose(action, other, atol=1e-6)
    assert {*states[1]} == {*states[0]} == {"pi_h", "pi_c"}
    for algorithm in (whole, resumed):
        algorithm.stop()


def test_it_acts_step_by_step_as_it_learns_from_sequences(backend: str) -> None:
    learner = recurrent("sac", backend).build_learner()
    rows = sequences("sac")
    read = learner._convert_batch_type({name: rows[name] for name in (Columns.OBS, Columns.STATE_IN)})
    whole = learner._convert_to_numpy(learner.module[P].forward_train(read))
    state = rows[Columns.STATE_IN]
    for step in range(4):
        acted = learner.compute_actions(rows[Columns.OBS][:, step], state=state, explore=False)
        state = acted[Columns.STATE_OUT]
        expected = whole[Columns.ACTION_DIST_INPUTS][:, step]
        np.testing.assert_allclose(acted[Columns.ACTION_DIST_INPUTS], expected, atol=1e-5)
    for name, each in whole[Columns.STATE_OUT].items():
        np.testing.assert_allclose(state[name], each, atol=1e-5)


def test_what_sequences_lack_is_said_and_changes_nothing(backend: str) -> None:
    learner = recurrent("sac", backend).build_learner()
    before, rows = digest(learner.get_state()), sequences("sac")
    without = {name: each for name, each in rows.items() if name != Columns.STATE_IN}
    for bad, said in (
        (without, "state_in"),
        ({**rows, Columns.STATE_IN: {"pi_h": np.zeros((2, 2), np.float32)}}, "state_in"),
        ({**rows, Columns.SEQ_LENS: np.array([4, 9])}, "lengths from 0 to the 4 steps"),
        ({**rows, Columns.REWARDS: rows[Columns.REWARDS][:, 0]}, "rewards"),
        ({**rows, Columns.OBS: np.where(MASK[..., None], np.nan, rows[Columns.OBS])}, ""),
    ):
        with pytest.raises(BatchError, match=said):
            learner.update(bad)
        assert digest(learner.get_state()) == before


def test_what_has_no_memory_is_said() -> None:
    box = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    for other in (CQLConfig, IQLConfig):
        made = other().framework("numpy").environment(observation_space=OBSERVATIONS, action_space=box)
        with pytest.raises(ConfigError, match="has no recurrent networks: leave use_lstm out"):
            made.rl_module(model_config=RECURRENT).build_learner()
    with pytest.raises(ConfigError, match=r"sequences of single steps, and n_step=3; set n_step=1"):
        run_config("numpy", n_step=3).build_algo()
