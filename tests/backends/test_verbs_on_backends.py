"""`forward_backward` and `optim_step` on every backend: calls of unequal sizes are the update of all of their rows."""

import numpy as np
import pytest
from learning import digest, ppo_batch, ppo_config, value_config, weights, with_modules

from plugrad import DEFAULT_MODULE_ID
from plugrad.errors import NonFiniteError
from plugrad.losses import mean_over_rows

P = DEFAULT_MODULE_ID
SGD = {"lr": 0.05, "grad_clip": 0.5, "optimizer": {"type": "sgd"}}
PARTS = ((0, 3), (3, 12))


def part(batch, first, last):
    return {name: column[first:last] for name, column in batch.items()}


def likelihood_and_error(learner, module_id, batch, fwd_out):
    ops = learner.ops
    policy = learner.module[module_id].get_train_action_dist_cls().from_logits(fwd_out["action_dist_inputs"])
    error = ops.square(fwd_out["vf_preds"] - batch["value_targets"])
    learner.register_metric(module_id, "error", mean_over_rows(ops, error, batch))
    return mean_over_rows(ops, error - policy.logp(batch["actions"]), batch)


def test_calls_of_unequal_sizes_are_the_update_of_all_rows(backend):
    config = ppo_config(backend, **SGD, use_kl_loss=True)
    whole, halves = (config.build_learner() for _ in range(2))
    for seed in range(2):
        batch = ppo_batch(12, seed=seed)
        expected = whole.update(batch)[P]
        for first, last in PARTS:
            halves.forward_backward(part(batch, first, last))
        found = halves.optim_step().result()[P]
        assert found.keys() == expected.keys()
        for name in expected:
            assert found[name] == pytest.approx(expected[name], abs=2e-6, rel=2e-6), name
    np.testing.assert_allclose(weights(halves), weights(whole), rtol=0, atol=1e-6)


def test_a_loss_of_a_call_on_two_modules_is_that_of_the_reference(backend):
    found = []
    for name in (backend, "numpy"):
        learner = with_modules(value_config(name, **SGD), "a", "b").build_learner()
        rows, others = ppo_batch(6), ppo_batch(4, seed=1)
        learner.forward_backward({"a": part(rows, 0, 2), "b": others}, likelihood_and_error)
        learner.forward_backward({"a": part(rows, 2, 6)}, likelihood_and_error)
        learner.optim_step()
        learner.forward_backward({"a": rows})
        learner.optim_step()
        found.append(np.concatenate([weights(learner, each) for each in "ab"]))
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-5)


def test_hidden_rows_and_rows_that_count_in_part_and_parts_of_a_call(backend):
    batch = ppo_batch(12)
    batch["loss_mask"] = np.array([1, 1 / 3, 0, 0, 1, 1, 1 / 2, 0, 1, 1 / 3, 0, 1 / 4], np.float32)
    whole = ppo_config(backend, **SGD).build_learner()
    halves = ppo_config(backend, **SGD, accumulate=2).build_learner()
    whole.update(batch)
    for first, last in ((0, 5), (5, 12)):
        halves.forward_backward(part(batch, first, last))
    halves.optim_step()
    np.testing.assert_allclose(weights(halves), weights(whole), rtol=0, atol=1e-6)


def test_an_error_undoes_to_the_last_step(backend):
    learner = ppo_config(backend, **SGD).build_learner()
    learner.forward_backward(ppo_batch(4))
    learner.optim_step()
    before = digest(learner.get_state())
    learner.forward_backward(ppo_batch(4, seed=1))
    bad = ppo_batch(4, seed=2)
    bad["advantages"][0] = np.nan
    with pytest.raises(NonFiniteError):
        learner.forward_backward(bad)
    assert digest(learner.get_state()) == before
    skipping = ppo_config(backend, **SGD, nonfinite="skip").build_learner()
    skipping.set_state(learner.get_state())
    for each in (learner, skipping):
        each.forward_backward(ppo_batch(4, seed=1))
        if each is skipping:
            each.forward_backward(bad)
        each.optim_step()
    np.testing.assert_array_equal(weights(learner), weights(skipping))


def test_a_number_that_a_loss_reads_may_change_between_calls(backend):
    scale = [1.0]

    def loss(learner, module_id, batch, fwd_out):
        return scale[0] * likelihood_and_error(learner, module_id, batch, fwd_out)

    learner, losses = value_config(backend, **SGD).build_learner(), []
    for scale[0] in (1.0, 1.0, 3.0):
        losses.append(learner.forward_backward(ppo_batch(6), loss).result()[P]["total_loss"])
        learner.drop_gradients()
    assert losses == pytest.approx([losses[0], losses[0], 3 * losses[0]], rel=1e-6)


def test_losses_written_anew_for_each_call_are_one_that_is_not(backend):
    """More of them than programs are kept."""

    def anew():
        return lambda *given: likelihood_and_error(*given)

    once, again = (value_config(backend, **SGD).build_learner() for _ in range(2))
    for number in range(10):
        batch = ppo_batch(4, seed=number)
        once.forward_backward(batch, likelihood_and_error)
        again.forward_backward(batch, anew())
    once.optim_step()
    again.optim_step()
    np.testing.assert_allclose(weights(again), weights(once), rtol=0, atol=1e-6)


def test_the_second_half_has_no_forward_pass_that_is_not_compiled(backend, caplog):
    learner = value_config(backend, **SGD).framework(compile="forward_train").build_learner()
    before = weights(learner)
    learner.forward_backward(ppo_batch(4))
    learner.optim_step()
    assert not np.array_equal(weights(learner), before)
    assert "forward_train of" not in caplog.text
