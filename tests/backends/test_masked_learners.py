"""Masked actions in learners: never taken, without probability and gradient; losses and targets are those of numpy."""

from functools import cache

import needs
import numpy as np
import pytest
from actor_critics import Paper
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from learning import OBSERVATIONS, digest, largest_difference
from threads import on_all

from plugrad import DEFAULT_MODULE_ID, Columns
from plugrad.action_masks import choice_sizes, forbids_all
from plugrad.errors import BatchError
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig

P = DEFAULT_MODULE_ID
SPACES = {
    "Discrete": spaces.Discrete(4),
    "MultiDiscrete": spaces.MultiDiscrete([3, 2]),
    "MultiBinary": spaces.MultiBinary(2),
    "Tuple": spaces.Tuple([spaces.Discrete(2, start=5), spaces.MultiDiscrete([2, 2])]),
}
ALGORITHMS = {
    "PPO": (PPOConfig, {}),
    "DQN": (DQNConfig, {"epsilon": 0.7}),
    "SAC": (SACConfig, {}),
}
each_space = pytest.mark.parametrize("space", SPACES)


def config(backend, space="Discrete", algorithm="PPO", *, compile="none", model=None, **training):
    cls, settings = ALGORITHMS[algorithm]
    return (
        cls()
        .framework(backend, compile=compile)
        .environment(observation_space=OBSERVATIONS, action_space=SPACES[space])
        .rl_module(model_config={"fcnet_hiddens": [4], **(model or {})})
        .training(**{"minibatch_size": None, "num_epochs": 1, "lr": 0.01, **settings, **training})
        .debugging(seed=1)
    )


def random_masks(space, rows=12, seed=0):
    """bool [rows, choices], of which each part has a choice left."""
    rng, sizes = np.random.default_rng(seed), choice_sizes(SPACES[space])
    parts = [rng.random((rows, n)) < 0.5 for n in sizes]
    for part in parts:
        part[np.arange(rows), rng.integers(part.shape[1], size=rows)] = True
    return np.concatenate(parts, -1)


def flags(actions, mask, space):
    """What the mask says of each part of the actions."""
    sizes = choice_sizes(SPACES[space])
    starts = np.cumsum((0, *sizes[:-1]))
    return np.take_along_axis(mask, np.reshape(actions, (len(mask), -1)).astype(int) + starts, -1)


def renormalised(inputs, mask, space):
    """Log-probabilities of the choices of each part, over those that the mask allows."""
    parts, start = [], 0
    for size in choice_sizes(SPACES[space]):
        own = np.float64(inputs[:, start : start + size])
        p = np.where(mask[:, start : start + size], np.exp(own - own.max(-1, keepdims=True)), 0.0)
        parts.append(p / p.sum(-1, keepdims=True))
        start += size
    return parts


def batch(learner, space, rows=12):
    obs = np.random.default_rng(2).normal(size=(rows, 3)).astype(np.float32)
    mask = random_masks(space, rows)
    rng = np.random.default_rng(3)
    columns = learner.compute_actions(obs, action_mask=mask, rng=np.random.default_rng(4))
    return {
        **columns,
        Columns.OBS: obs,
        Columns.ACTION_MASK: mask,
        Columns.ADVANTAGES: rng.normal(size=rows).astype(np.float32),
        Columns.VALUE_TARGETS: rng.normal(size=rows).astype(np.float32),
    }


def transitions(rows=12, masked=True):
    rng = np.random.default_rng(5)
    masks = {
        Columns.ACTION_MASK: random_masks("Discrete", rows, 6),
        Columns.NEXT_ACTION_MASK: random_masks("Discrete", rows, 7),
    }
    return {
        Columns.OBS: rng.normal(size=(rows, 3)).astype(np.float32),
        Columns.ACTIONS: masks[Columns.ACTION_MASK].argmax(-1),
        Columns.REWARDS: rng.normal(size=rows).astype(np.float32),
        Columns.NEXT_OBS: rng.normal(size=(rows, 3)).astype(np.float32),
        Columns.TERMINATEDS: np.arange(rows) % 5 == 0,
        **(masks if masked else {}),
    }


# --- acting ---


@cache
def acting(backend, space, algorithm):
    return config(backend, space, algorithm).build_learner()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(seed=st.integers(0, 10**6), explore=st.booleans())
def test_no_algorithm_takes_a_forbidden_action(algorithm, seed, explore):
    learner, mask = acting("numpy", "Discrete", algorithm), random_masks("Discrete", 20, seed)
    obs = np.random.default_rng(seed).normal(scale=5.0, size=(20, 3)).astype(np.float32)
    found = learner.compute_actions(obs, action_mask=mask, explore=explore)
    assert flags(found["actions"], mask, "Discrete").all()


@each_space
@given(seed=st.integers(0, 10**6), explore=st.booleans())
def test_no_part_of_an_action_is_a_forbidden_choice(space, seed, explore):
    learner, mask = acting("numpy", space, "PPO"), random_masks(space, 20, seed)
    obs = np.random.default_rng(seed).normal(scale=5.0, size=(20, 3)).astype(np.float32)
    found = learner.compute_actions(obs, action_mask=mask, explore=explore)
    assert flags(found["actions"], mask, space).all()
    free = learner.compute_actions(obs, explore=explore)[Columns.ACTION_DIST_INPUTS]
    of_parts = renormalised(free, mask, space)
    starts = np.cumsum([0, *choice_sizes(SPACES[space])[:-1]])
    chosen = np.reshape(found["actions"], (20, -1)).astype(int)
    logp = sum(np.log(p[np.arange(20), chosen[:, n]]) for n, p in enumerate(of_parts))
    assert len(starts) == len(of_parts)
    np.testing.assert_allclose(found["action_logp"], logp, rtol=1e-4, atol=1e-5)


def test_epsilon_greedy_draws_among_the_allowed_actions_alone():
    learner, mask = acting("numpy", "Discrete", "DQN"), np.array([[False, True, True, False]])
    obs = np.zeros((1, 3), np.float32)
    values = learner.compute_actions(obs, explore=False)[Columns.ACTION_DIST_INPUTS][0]
    found = learner.compute_actions(obs, action_mask=mask)[Columns.ACTION_DIST_INPUTS][0]
    probabilities = np.exp(np.float64(found))
    best = 1 + values[1:3].argmax()
    expected = np.where(mask[0], 0.35, 0.0)
    expected[best] += 0.3
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (np.ones((2, 3), bool), r"expected shape \[2, 4\].*found shape \[2, 3\]"),
        (np.ones((3, 4), bool), r"expected shape \[2, 4\].*found shape \[3, 4\]"),
        (np.full((2, 4), 2), "booleans, or numbers that are 0 or 1"),
        (np.full((2, 4), "a"), "booleans, or numbers that are 0 or 1"),
        (np.eye(2, 4) * [[1], [0]], "at least one allowed action in each row, found none in row 1"),
    ],
)
def test_a_mask_that_cannot_be_is_refused(mask, words):
    learner = acting("numpy", "Discrete", "PPO")
    before = digest(learner.get_state())
    with pytest.raises(BatchError, match=rf"module '{P}', column 'action_mask': .*{words}"):
        learner.compute_actions(np.zeros((2, 3), np.float32), action_mask=mask)
    assert digest(learner.get_state()) == before


# --- losses ---


@each_space
def test_entropy_and_loss_are_those_of_the_renormalised_distribution(backend, space):
    learner = config(backend, space).build_learner()
    rows = batch(learner, space)
    free = learner.compute_actions(rows[Columns.OBS], explore=False)[Columns.ACTION_DIST_INPUTS]
    of_parts = renormalised(free, rows[Columns.ACTION_MASK], space)
    entropy = sum(-(p * np.log(np.where(p > 0, p, 1.0))).sum(-1) for p in of_parts)
    results = learner.update(rows)[P]
    assert results["entropy"] == pytest.approx(entropy.mean(), rel=1e-4)
    assert results["policy_loss"] == pytest.approx(-rows[Columns.ADVANTAGES].mean(), abs=1e-5)


@pytest.mark.parametrize("compile", ["none", "forward_train"])
def test_no_gradient_reaches_a_choice_that_is_always_forbidden(backend, compile):
    learner = config(backend, compile=compile, entropy_coeff=0.1, use_kl_loss=True).build_learner()
    rows = batch(learner, "Discrete")
    mask = np.tile([True, False, True, True], (12, 1))
    acted = learner.compute_actions(rows[Columns.OBS], action_mask=mask, rng=np.random.default_rng(4))
    before = learner.get_weights()[P]
    learner.update({**rows, **acted, Columns.ACTION_MASK: mask})
    after = learner.get_weights()[P]
    for name in ("pi.out.weight", "pi.out.bias"):
        np.testing.assert_array_equal(after[name][..., 1], before[name][..., 1])
        assert (after[name][..., [0, 2, 3]] != before[name][..., [0, 2, 3]]).any()


def trained(backend, algorithm, compile="none", **settings):
    learner = config(backend, algorithm=algorithm, compile=compile, **settings).build_learner()
    rows = batch(learner, "Discrete") if algorithm == "PPO" else transitions()
    return learner, [learner.update(rows)[P] for _ in range(2)][-1]


@pytest.mark.parametrize(
    ("algorithm", "compile"), [("PPO", "none"), ("DQN", "none"), ("SAC", "none"), ("SAC", "complete_update")]
)
def test_backends_agree_within_1e_5(backend, algorithm, compile):
    (one, found), (other, expected) = trained(backend, algorithm, compile), trained("numpy", algorithm)
    assert largest_difference(one.get_weights(), other.get_weights()) < 1e-5
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_several_learners_compute_what_one_does(algorithm):
    needs.backend("torch")  # learners of TensorFlow in one process share the thread that waits
    made = config("torch", algorithm=algorithm)
    one, several = made.build_learner(), [made.build_learner() for _ in range(2)]
    rows = batch(one, "Discrete") if algorithm == "PPO" else transitions()
    expected = one.update(rows)[P]
    for found in on_all(several, lambda learner: learner.update(rows)):
        for name in expected.keys() - {"qf_min", "qf_max"}:  # of a group, means over the learners
            assert found[P][name] == pytest.approx(expected[name], rel=1e-5, abs=1e-6), name
    assert largest_difference(one.get_weights(), several[0].get_weights()) < 1e-6


# --- targets ---


@pytest.mark.parametrize("double_q", [False, True])
def test_the_target_of_dqn_never_takes_the_value_of_a_forbidden_action(backend, double_q):
    learner = config(backend, algorithm="DQN", double_q=double_q, dueling=False, gamma=0.9).build_learner()
    weights = learner.get_weights()[P]
    weights["q.out.bias"] = np.float32([0.0, 100.0, 0.0, 0.0])
    learner.set_weights({P: weights})
    learner.targets[P].update()
    rows = transitions()
    rows[Columns.ACTION_MASK][:, 1] = rows[Columns.NEXT_ACTION_MASK][:, 1] = False
    rows[Columns.ACTION_MASK][:, 0] = rows[Columns.NEXT_ACTION_MASK][:, 0] = True
    rows[Columns.ACTIONS][:] = 0
    q, following = (
        learner.compute_actions(rows[column], explore=False)[Columns.ACTION_DIST_INPUTS]
        for column in (Columns.OBS, Columns.NEXT_OBS)
    )
    assert (following.argmax(-1) == 1).all(), "without the mask this action would be chosen"
    best = np.where(rows[Columns.NEXT_ACTION_MASK], following, -np.inf).max(-1)
    errors = q[:, 0] - rows[Columns.REWARDS] - 0.9 * ~rows[Columns.TERMINATEDS] * best
    results = learner.update(rows)[P]
    assert results["td_error_mean_abs"] == pytest.approx(np.abs(errors).mean(), rel=1e-4)
    assert results["td_error_mean_abs"] < 10.0


class MaskedPaper(Paper):
    """SAC with masks, in numpy: probabilities over the allowed actions, and a target of their entropy."""

    def probabilities(self, weights, obs):
        is_present = obs is self.rows[Columns.OBS]
        mask = self.rows[Columns.ACTION_MASK if is_present else Columns.NEXT_ACTION_MASK]
        p, _ = super().probabilities(weights, obs)
        p = np.where(mask, p, 0.0) / np.where(mask, p, 0.0).sum(-1, keepdims=True)
        return p, np.log(np.where(mask, p, 1.0))

    @property
    def target_entropy(self):
        return float(0.98 * np.log(self.rows[Columns.ACTION_MASK].sum(-1)).mean())


def test_sac_counts_allowed_actions_alone(backend):
    learner = config(backend, algorithm="SAC", gamma=0.9, tau=0.5).build_learner()
    rows = transitions()
    learner.update(rows)
    paper = MaskedPaper("sac discrete", learner.get_weights()[P], learner.targets[P].get_state(), rows, {})
    expected, errors = paper.losses(), paper.td_errors(paper.weights)
    results = learner.update(rows)[P]
    assert results["td_error_mean"] == pytest.approx(np.abs(errors).mean(), rel=1e-4)
    assert results["policy_loss"] == pytest.approx(expected["actor"], rel=1e-4)
    found = [results[name] for name in ("entropy", "target_entropy", "alpha_loss")]
    wanted = [paper.entropy, paper.target_entropy, expected["alpha"]]
    assert found == pytest.approx(wanted, rel=1e-4, abs=1e-6)


# --- sequences ---


@pytest.mark.parametrize("cell", ["use_lstm", "use_gru"])
def test_masks_of_sequences_are_masks_of_their_steps(backend, cell):
    model = {cell: True, "lstm_cell_size": 4, "gru_cell_size": 4, "max_seq_len": 4}
    learner = config(backend, model=model).build_learner()
    reference = config(backend, model=model).build_learner()
    rows = batch(learner, "Discrete", rows=2)
    masks = random_masks("Discrete", 8).reshape(2, 4, 4)
    masks[1, 2:] = False  # the padding of the second sequence
    columns = {
        name: np.repeat(values[:, None], 4, 1)
        for name, values in rows.items()
        if name not in (Columns.STATE_OUT, Columns.ACTION_MASK)
    }
    columns[Columns.ACTIONS] = masks.argmax(-1)
    columns[Columns.STATE_IN] = {
        name: np.zeros((2, *np.shape(value)), np.float32)
        for name, value in learner.module[P].get_initial_state().items()
    }
    columns |= {Columns.ACTION_MASK: masks, Columns.SEQ_LENS: np.array([4, 2])}
    results = learner.update(columns)[P]
    assert np.isfinite(results["total_loss"])
    padded_otherwise = masks.copy()
    padded_otherwise[1, 2:] = [True, False, True, False]
    others = reference.update({**columns, Columns.ACTION_MASK: padded_otherwise})[P]
    assert others["total_loss"] == results["total_loss"]
    assert largest_difference(learner.get_weights(), reference.get_weights()) == 0.0
    masks[0, 3] = False
    with pytest.raises(BatchError, match="at least one allowed action in each row, found none in row 0, 3"):
        learner.update({**columns, Columns.ACTION_MASK: masks})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({Columns.ACTION_MASK: np.zeros((12, 4), bool)}, "'action_mask'.*none in row 0"),
        ({Columns.NEXT_ACTION_MASK: np.zeros((12, 4), bool)}, "'new_action_mask'.*none in row 1"),
        ({Columns.ACTION_MASK: np.ones((12, 5), bool)}, r"'action_mask': expected shape \[12, 4\]"),
        ({Columns.ACTIONS: np.tile(2, 12)}, "an action that the mask allows in each row, found a forbidden"),
    ],
)
def test_masks_of_a_batch_are_checked_before_anything_changes(changed, words):
    learner = config("numpy", algorithm="DQN").build_learner()
    rows = transitions()
    rows[Columns.ACTION_MASK] = np.tile([True, True, False, True], (12, 1))
    rows[Columns.ACTIONS][:] = 0
    before = digest(learner.get_state())
    with pytest.raises(BatchError, match=rf"module '{P}', column {words}|module '{P}', column .*{words}"):
        learner.update({**rows, **changed})
    assert digest(learner.get_state()) == before


def test_rows_that_do_not_count_may_have_any_mask_and_action():
    learner, rows = config("numpy", algorithm="DQN").build_learner(), transitions()
    rows[Columns.LOSS_MASK] = np.arange(12) < 8
    rows[Columns.ACTION_MASK][8:] = rows[Columns.NEXT_ACTION_MASK][8:] = False
    rows[Columns.ACTIONS][8:] = 99
    assert np.isfinite(learner.update(rows)[P]["total_loss"])


def test_a_mask_of_continuous_actions_is_refused():
    box = spaces.Box(-1.0, 1.0, (2,))
    learner = config("numpy").environment(observation_space=OBSERVATIONS, action_space=box).build_learner()
    with pytest.raises(BatchError, match=r"expected no such column, found one, and .*discrete actions"):
        learner.compute_actions(np.zeros((1, 3), np.float32), action_mask=[[True]])


def test_the_masks_of_the_tests_allow_something():
    for space in SPACES:
        assert not forbids_all(random_masks(space), choice_sizes(SPACES[space])).any()
