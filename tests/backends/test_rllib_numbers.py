"""RLlib 2.60 has computed each case of `tests/data/rllib`; plugrad gets the same from the same weights and batches.

`benchmarks/rllib_numbers.py` wrote them: losses, gradients, weights after 1 and 20 updates. Where plugrad computes
otherwise on purpose, a test here says how.
"""

import numpy as np
import pytest
import rllib_fixture as rllib
from learning import quick_mode

from plugrad import DEFAULT_MODULE_ID as P
from plugrad import Columns

STEPS = "num_env_steps_sampled_lifetime"
UPDATES = 20
MOVING = "marwil_moving_average"
CASES = [name for name in rllib.CASES if name != MOVING]
COMPARED = {
    *(
        "total_loss",
        "policy_loss",
        "vf_loss",
        "vf_loss_unclipped",
        "entropy",
        "curr_entropy_coeff",
        "curr_kl_coeff",
    ),
    *("qf_loss", "qf_mean", "qf_min", "qf_max", "td_error_mean", "moving_avg_sqd_adv_norm"),
    *(
        "default_optimizer_learning_rate",
        "gradients_default_optimizer_global_norm",
        "num_trainable_parameters",
    ),
}
"""Results under RLlib's names."""


def update(learner, name, number=1, **cut):
    return learner.update(rllib.batch(name), timesteps={STEPS: 100 * number}, **cut)[P]


def results_of(name, number):
    return rllib.CASES[name]["results"][str(number)]


def farthest(found, expected):
    assert found.keys() == expected.keys()
    return max(float(np.abs(found[name] - expected[name]).max()) for name in expected)


def assert_follows(name, backend, compile):
    """20 updates, compared after the first and the last."""
    learner = rllib.build(name, backend, compile=compile)
    for number in range(1, UPDATES + 1):
        results = update(learner, name, number)
        if number in (1, UPDATES):
            assert farthest(learner.get_weights()[P], rllib.weights(name, number)) < 1e-6
            if not rllib.CASES[name]["update"]:  # a mean over the minibatches here, the last one there
                expected = dict(results_of(name, number))
                if "num_trainable_parameters" in expected:
                    expected["num_trainable_parameters"] -= rllib.num_held_at_zero(name)
                for key in COMPARED & expected.keys():
                    assert results[key] == pytest.approx(expected[key], abs=1e-6, rel=1e-5), key


@pytest.mark.parametrize("name", CASES)
def test_losses_and_weights_after_1_and_20_updates_are_those_of_rllib(backend, name):
    assert_follows(name, backend, quick_mode(backend))


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_compiled_updates_give_rllibs_numbers_too(backend, name):
    assert_follows(name, backend, "complete_update")


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_rllib(backend, name):
    """Plain SGD with a rate of 1 moves the weights by the gradients, clipped where the case clips."""
    learner = rllib.build(name, backend, optimizer={"type": "sgd"}, lr=1.0)
    before = learner.get_weights()[P]
    update(learner, name, num_total_minibatches=1)
    after = learner.get_weights()[P]
    moved = {each: before[each] - after[each] for each in before}
    expected = rllib.gradients(name)
    largest = max(float(np.abs(each).max()) for each in expected.values())
    assert farthest(moved, expected) < 1e-6 * max(1.0, largest)


# --- where plugrad computes otherwise ---


def test_marwils_average_moves_after_an_update_and_is_used_by_the_next_where_rllib_moves_it_first(backend):
    learner = rllib.build(MOVING, backend)
    results = update(learner, MOVING)
    assert results["moving_avg_sqd_adv_norm"] == pytest.approx(
        results_of(MOVING, 1)["moving_avg_sqd_adv_norm"], rel=1e-6
    )
    theirs = results_of(MOVING, 1)["policy_loss"]
    assert abs(results["policy_loss"] - theirs) > 0.01
    moved = {"moving_average_sqd_adv_norm_start": results["moving_avg_sqd_adv_norm"]}
    results = update(rllib.build(MOVING, backend, **moved), MOVING)
    assert results["policy_loss"] == pytest.approx(theirs, rel=1e-6)


def test_marwils_average_moves_once_per_update_by_the_mean_over_all_minibatches(backend):
    learner = rllib.build(MOVING, backend, lr=0.0)
    results = update(learner, MOVING, minibatch_size=8, num_epochs=3)
    expected = 4.0 + 0.1 * (results["mean_squared_advantage"] - 4.0)
    assert results["moving_avg_sqd_adv_norm"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("far", ["first", "last"])
def test_the_kl_coefficient_follows_the_mean_over_all_minibatches_not_the_last_one(backend, far):
    """One minibatch is of the present policy, the other far from it: whichever comes last, the mean is above."""
    learner = rllib.build("ppo_kl", backend, lr=0.0, kl_coeff=1.0, kl_target=0.01)
    batch = rllib.batch("ppo_kl")
    present = learner.module[P].forward_train(learner._convert_batch_type({Columns.OBS: batch[Columns.OBS]}))
    logits = learner._convert_to_numpy(present[Columns.ACTION_DIST_INPUTS])
    rows = slice(0, 12) if far == "first" else slice(12, 24)
    logits[rows] += np.array([2.0, -2.0], np.float32)
    results = learner.update({**batch, Columns.ACTION_DIST_INPUTS: logits}, minibatch_size=12)[P]
    assert results["curr_kl_coeff"] == pytest.approx(1.5)


def test_advantages_are_standardised_over_real_rows_only_where_rllib_counts_its_artificial_ones(backend):
    found = rllib.arrays("advantages")
    config = rllib.config("ppo", backend, compile=quick_mode(backend))
    learner = config.training(gamma=float(found["gamma"]), lambda_=float(found["lambda"])).build_learner()
    learner.set_weights({P: rllib.tensors("advantages", "weights")})
    columns = learner.run_connectors(rllib.episodes())[P]
    real = found["batch/loss_mask"]
    theirs = found["batch/advantages"][real]
    np.testing.assert_allclose(columns[Columns.VALUE_TARGETS], found["batch/value_targets"][real], atol=1e-5)
    advantages = columns[Columns.ADVANTAGES]
    assert (advantages.mean(), advantages.std()) == pytest.approx((0.0, 1.0), abs=1e-5)
    assert abs(theirs.mean()) > 0.01  # not theirs
    np.testing.assert_allclose(advantages, (theirs - theirs.mean()) / theirs.std(), atol=1e-5)
