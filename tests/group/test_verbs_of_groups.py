"""`forward_backward` and `optim_step` of a group: shares of rows, errors of one learner, learners that are lost."""

import os
import signal

import numpy as np
import pytest
from groups import Groups, be, group_config
from learning import digest, largest_difference, ppo_batch
from threads import on_all

from plugrad import DEFAULT_MODULE_ID, LearnerGroup
from plugrad.errors import CollectiveError, NonFiniteError, UnfinishedStepError
from plugrad.learner.state.state import digest as digest_of

P = DEFAULT_MODULE_ID


def part(batch, first, last):
    return {name: column[first:last] for name, column in batch.items()}


def squared_error(learner, module_id, batch, fwd_out):
    return learner.ops.mean(learner.ops.square(fwd_out["vf_preds"] - batch["value_targets"]))


def test_three_learners_are_one() -> None:
    learners = [group_config("torch").build_learner() for _ in range(3)]
    one, batch = group_config("torch").build_learner(), ppo_batch(13)

    def train(learner):
        for loss in (None, squared_error):
            for first, last in ((0, 2), (2, 13)):
                learner.forward_backward(part(batch, first, last), loss)
            learner.optim_step()

    assert on_all(learners, train) == [None] * 3
    train(one)
    for learner in learners:
        assert largest_difference(learner.get_weights(), one.get_weights()) < 1e-6
    assert len(set(map(digest_of, learners))) == 1


def test_an_error_of_one_learner_drops_the_step_of_all() -> None:
    learners = [group_config("torch").build_learner() for _ in range(3)]
    before = list(map(digest_of, learners))

    def train(learner):
        learner.forward_backward(ppo_batch(6))
        if learner is learners[1]:
            learner.compute_losses = lambda **_: 1 / 0
        return learner.forward_backward(ppo_batch(6))

    errors = on_all(learners, train)
    assert isinstance(errors[1], ZeroDivisionError)
    assert all(isinstance(each, CollectiveError) for each in (errors[0], errors[2]))
    assert list(map(digest_of, learners)) == before
    assert [each._verbs.num_calls for each in learners] == [0, 0, 0]


def test_a_share_that_is_not_finite_is_an_error_of_all() -> None:
    learners = [group_config("torch").build_learner() for _ in range(3)]

    def infinite_on_one(learner, module_id, batch, fwd_out):
        loss = squared_error(learner, module_id, batch, fwd_out)
        return loss + np.inf if learner is learners[1] else loss

    found = on_all(learners, lambda learner: learner.forward_backward(ppo_batch(6), infinite_on_one))
    assert [type(each) for each in found] == [NonFiniteError] * 3


def test_remote_learners_are_one(pair: LearnerGroup, backend: str) -> None:
    one, batch = pair_of_one(pair, backend), ppo_batch(13)
    batch["loss_mask"] = (1.0 / np.arange(1, 14)).astype(np.float32)
    futures = [pair.forward_backward(part(batch, 0, 4)), pair.forward_backward(part(batch, 4, 13))]
    futures += [pair.optim_step(timesteps={"num_env_steps_sampled_lifetime": 13})]
    results = [each.result() for each in futures]
    assert all(len(each) == 2 for each in results)
    for first, last in ((0, 4), (4, 13)):
        one.forward_backward(part(batch, first, last))
    expected = one.optim_step(timesteps={"num_env_steps_sampled_lifetime": 13}).result()
    for each in results[-1]:
        assert each[P]["total_loss"] == pytest.approx(expected[P]["total_loss"], abs=1e-6)
    assert len(set(pair.foreach_learner(digest_of))) == 1
    assert largest_difference(pair.get_weights(), one.get_weights()) < 1e-6


def pair_of_one(pair: LearnerGroup, backend: str):
    one = group_config(backend).build_learner()
    one.set_state(pair.get_state()["learner"])
    return one


def test_a_save_between_the_verbs_and_an_error_of_one_remote_learner(pair: LearnerGroup, tmp_path) -> None:
    before = digest(pair.get_state())
    pair.forward_backward(ppo_batch(6)).result()
    for call in (lambda: pair.save_to_path(tmp_path), lambda: pair.update(ppo_batch(6))):
        with pytest.raises(UnfinishedStepError, match=r"call optim_step\(\) first"):
            call()
    pair.drop_gradients()
    pair.foreach_learner(be, {1: "raise before"})
    with pytest.raises(KeyError, match="before the first exchange"):
        pair.forward_backward(ppo_batch(6)).result()
    pair.foreach_learner(be, {1: "raise after"})
    pair.forward_backward(ppo_batch(6))
    with pytest.raises(ZeroDivisionError, match="after the last exchange"):
        pair.optim_step().result()
    pair.foreach_learner(be, {})
    assert digest(pair.get_state()) == before
    assert len(set(pair.foreach_learner(digest_of))) == 1
    pair.forward_backward(ppo_batch(6))
    (first, _) = pair.optim_step().result()
    assert first[P]["num_module_steps_trained"] == 6


def test_a_learner_that_is_lost_between_the_verbs_takes_the_step_with_it(groups: Groups) -> None:
    group = groups.get("torch", 2)
    before = group.get_weights()
    group.forward_backward(ppo_batch(6)).result()
    os.kill(group.foreach_learner(lambda learner: os.getpid())[1], signal.SIGKILL)
    with pytest.raises(UnfinishedStepError, match="are lost"):
        group.optim_step().result()
    assert largest_difference(group.get_weights(), before) == 0.0
    assert len(set(group.foreach_learner(digest_of))) == 1
    one = pair_of_one(group, "torch")
    for each in (group, one):
        each.forward_backward(ppo_batch(6)).result()
        each.optim_step().result()
    assert largest_difference(group.get_weights(), one.get_weights()) < 1e-6
