"""`forward_backward` and `optim_step`: one step in two halves, of which the first may be taken in any parts."""

import threading

import numpy as np
import pytest
from learning import ValueLearner, digest, ppo_batch, ppo_config, value_config, weights, with_modules

from plugrad import ALL_MODULES, DEFAULT_MODULE_ID, Learner, LearnerGroup, hookimpl
from plugrad.errors import (
    BatchError,
    ConfigError,
    NonFiniteError,
    NotBuiltError,
    UnfinishedStepError,
)
from plugrad.group.request_queue import BackgroundRequestQueue
from plugrad.learner.state.state import digest as digest_of_learner
from plugrad.losses import find_loss, mean_over_rows, named_loss
from plugrad.testing.taking_turns import take_turns

P = DEFAULT_MODULE_ID
TRAINING = {"lr": 0.05, "grad_clip": 0.5}


def part(batch, first, last):
    return {name: column[first:last] for name, column in batch.items()}


def likelihood_and_error(learner, module_id, batch, fwd_out):
    """A loss of nobody's class."""
    ops = learner.ops
    policy = learner.module[module_id].get_train_action_dist_cls().from_logits(fwd_out["action_dist_inputs"])
    error = ops.square(fwd_out["vf_preds"] - 2.0 * batch["value_targets"])
    learner.register_metric(module_id, "error", mean_over_rows(ops, error, batch))
    return mean_over_rows(ops, error - policy.logp(batch["actions"]), batch)


class Own(ValueLearner):
    """The same loss, as a subclass has it."""

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        return likelihood_and_error(self, module_id, batch, fwd_out)


def test_a_call_and_a_step_are_the_update_of_the_same_rows():
    whole, halves = (ppo_config(**TRAINING).build_learner() for _ in range(2))
    for seed, timestep in enumerate((10, 20)):
        timesteps = {"num_env_steps_sampled_lifetime": timestep}
        expected = whole.update(ppo_batch(12, seed=seed), timesteps=timesteps)
        first = halves.forward_backward(ppo_batch(12, seed=seed)).result()
        found = halves.optim_step(timesteps=timesteps).result()
        assert first[P]["total_loss"] == pytest.approx(expected[P]["total_loss"], abs=1e-6)
        assert found.keys() == expected.keys()
        for module_id in expected:
            names = [each for each in expected[module_id] if not each.startswith("time/")]
            for name in names:
                assert found[module_id][name] == pytest.approx(expected[module_id][name], abs=1e-6), name
    np.testing.assert_allclose(weights(halves), weights(whole), rtol=0, atol=1e-6)
    assert halves.counters == whole.counters
    assert digest(halves.get_state("streams")) == digest(whole.get_state("streams"))


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_calls_of_unequal_sizes_are_one_batch(clip, accumulate):
    config = ppo_config(lr=0.05, grad_clip=clip, use_kl_loss=True)
    whole, halves = config.build_learner(), config.training(accumulate=accumulate).build_learner()
    batch = ppo_batch(12)
    for _ in range(2):
        expected = whole.update(batch)[P]
        for first, last in ((0, 1), (1, 4), (4, 12)):
            halves.forward_backward(part(batch, first, last))
        found = halves.optim_step().result()[P]
        for name in expected:
            assert found[name] == pytest.approx(expected[name], abs=1e-5), name
    np.testing.assert_allclose(weights(halves), weights(whole), rtol=0, atol=1e-6)


def test_hidden_rows_do_not_count():
    batch = ppo_batch(12)
    batch["loss_mask"] = np.array([1, 1, 0, 0, 0, 1, 1, 1, 1, 0, 1, 1], np.float32)
    whole, halves = (value_config(lr=0.05, learner_class=Own).build_learner() for _ in range(2))
    whole.update(batch)
    halves.forward_backward(part(batch, 0, 5))
    halves.forward_backward(part(batch, 5, 12))
    assert halves.optim_step().result()[P]["num_module_steps_trained"] == 8
    np.testing.assert_allclose(weights(halves), weights(whole), rtol=0, atol=1e-6)


def test_modules_with_other_shares_of_their_rows_in_each_call():
    whole, halves = (with_modules(value_config(lr=0.1), "a", "b").build_learner() for _ in range(2))
    rows, others = ppo_batch(8), ppo_batch(6, seed=1)
    whole.update({"a": rows, "b": others})
    halves.forward_backward({"a": part(rows, 0, 2)})
    halves.forward_backward({"a": part(rows, 2, 8), "b": part(others, 0, 1)})
    halves.forward_backward({"b": part(others, 1, 6)})
    halves.optim_step()
    for module_id in "ab":
        np.testing.assert_allclose(weights(halves, module_id), weights(whole, module_id), rtol=0, atol=1e-6)


class Joint(ValueLearner):
    """One loss of two modules."""

    def compute_losses(self, *, fwd_out, batch):
        return {ALL_MODULES: sum(super().compute_losses(fwd_out=fwd_out, batch=batch).values())}


def test_a_loss_of_all_modules_refuses_other_shares_of_rows():
    config = with_modules(value_config(lr=0.1, learner_class=Joint), "a", "b")
    halves = config.build_learner()
    before = digest(halves.get_state())
    halves.forward_backward({"a": ppo_batch(4), "b": ppo_batch(2)})
    halves.forward_backward({"a": ppo_batch(2), "b": ppo_batch(1)})
    with pytest.raises(BatchError, match="in different proportions"):
        halves.forward_backward({"a": ppo_batch(2), "b": ppo_batch(2)})
    assert digest(halves.get_state()) == before


def test_a_loss_may_be_given_or_named_for_a_call():
    own, given, named = (
        value_config(lr=0.05, grad_clip=0.5, learner_class=cls).build_learner()
        for cls in (Own, ValueLearner, ValueLearner)
    )
    named_loss("likelihood_and_error")(likelihood_and_error)
    own.update(ppo_batch(12))
    for learner, loss in ((given, likelihood_and_error), (named, "likelihood_and_error")):
        learner.forward_backward(part(ppo_batch(12), 0, 5), loss)
        learner.forward_backward(part(ppo_batch(12), 5, 12), loss=loss)
        error = learner.optim_step().result()[P]["error"]
        assert error == pytest.approx(own.metrics.results[P]["error"], abs=1e-6)
        np.testing.assert_allclose(weights(learner), weights(own), rtol=0, atol=1e-6)
    given.update(ppo_batch(12))  # its own again
    other = value_config(lr=0.05, grad_clip=0.5).build_learner()
    other.set_state(named.get_state())
    other.update(ppo_batch(12))
    np.testing.assert_allclose(weights(given), weights(other), rtol=0, atol=1e-6)


def test_each_call_may_have_another_loss():
    def half(learner, module_id, batch, fwd_out):
        return 0.5 * learner.ops.mean(learner.ops.square(fwd_out["vf_preds"] - batch["value_targets"]))

    learner, scaled = (value_config(lr=0.05).build_learner() for _ in range(2))
    rows, others = ppo_batch(4), ppo_batch(4, seed=1)
    learner.forward_backward(rows)
    learner.forward_backward(others, half)
    learner.forward_backward(others, half)
    learner.optim_step()
    # (g1 + g2 / 2 + g2 / 2) / 3: three calls with as many rows
    for each in (rows, others):
        scaled.forward_backward(each, lambda *args: half(*args) * 2.0 * 2.0 / 3.0)
    scaled.optim_step()
    np.testing.assert_allclose(weights(learner), weights(scaled), rtol=0, atol=1e-6)


def test_a_loss_that_does_not_exist_is_an_error_in_words():
    learner = value_config().build_learner()
    named_loss("likelihood_and_error")(likelihood_and_error)
    with pytest.raises(ConfigError, match="Did you mean 'likelihood_and_error'"):
        learner.forward_backward(ppo_batch(4), "likelihood_and_eror")
    with pytest.raises(ConfigError, match="expected a function"):
        learner.forward_backward(ppo_batch(4), 3)
    with pytest.raises(ConfigError, match="has this name"):
        named_loss("likelihood_and_error")(lambda *args: args)
    assert find_loss("likelihood_and_error") is likelihood_and_error


class Watches:
    """Wraps all that the two halves call."""

    def __init__(self):
        self.seen = []

    def _note(self, name):
        self.seen.append(name)
        return (yield)

    @hookimpl(wrapper=True)
    def compute_losses(self, learner):
        self.seen.append("losses")
        losses = yield
        return {module_id: 2.0 * loss for module_id, loss in losses.items()}

    @hookimpl(wrapper=True)
    def compute_loss_for_module(self, learner):
        self.seen.append("loss")
        return (yield)

    @hookimpl(wrapper=True)
    def compute_gradients(self, learner):
        self.seen.append("gradients")
        return (yield)

    @hookimpl(wrapper=True)
    def reduce_gradients(self, learner):
        self.seen.append("reduce")
        return (yield)

    @hookimpl(wrapper=True)
    def postprocess_gradients(self, learner):
        self.seen.append("postprocess")
        return (yield)

    @hookimpl(wrapper=True)
    def apply_gradients(self, learner):
        self.seen.append("apply")
        return (yield)

    @hookimpl
    def update_begun(self, learner):
        self.seen.append("begun")

    @hookimpl
    def update_ended(self, learner, results):
        self.seen.append("ended")


def without_repeats(seen):
    return [each for n, each in enumerate(seen) if n == 0 or each != seen[n - 1]]


@pytest.mark.parametrize("loss", [None, likelihood_and_error])
def test_wrappers_run_around_both_halves(loss):
    watches = Watches()
    learner = Own(config=value_config(lr=0.05, learner_class=Own), plugins=[watches])
    learner.build()
    other = Own(config=value_config(lr=0.05, learner_class=Own), plugins=[Watches()])
    other.build()
    watches.seen.clear()
    learner.forward_backward(ppo_batch(4), loss)
    assert watches.seen[0] == "begun"
    assert {*watches.seen} == {"begun", "losses", "loss", "gradients"}
    watches.seen.clear()
    learner.forward_backward(ppo_batch(4), loss)
    assert {*watches.seen} == {"losses", "loss", "gradients"}
    watches.seen.clear()
    learner.optim_step()
    assert without_repeats(watches.seen) == ["reduce", "postprocess", "apply", "ended"]
    other.update(ppo_batch(4))
    np.testing.assert_allclose(weights(learner), weights(other), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("update", [ppo_batch(4)]),
        ("get_state", []),
        ("set_state", [{}]),
        ("set_weights", [{}]),
        ("save_to_path", ["nowhere"]),
        ("restore_from_path", ["nowhere"]),
        ("remove_module", ["b"]),
    ],
)
def test_what_would_lose_gradients_is_an_error_that_says_what_to_type(method, arguments):
    learner = with_modules(value_config(lr=0.1), "a", "b").build_learner()
    learner.forward_backward({"a": ppo_batch(4)})
    with pytest.raises(
        UnfinishedStepError, match=rf"{method} between .* call optim_step\(\) first, or drop_"
    ):
        getattr(learner, method)(*arguments)
    assert learner.optim_step().result()["a"]["num_module_steps_trained"] == 4


def test_a_save_after_the_step_holds_it(tmp_path):
    learner = ppo_config(**TRAINING).build_learner()
    learner.forward_backward(ppo_batch(4))
    learner.optim_step()
    learner.save_to_path(tmp_path / "saved")
    again = Learner.from_checkpoint(tmp_path / "saved")
    assert digest(again.get_state()) == digest(learner.get_state())


def test_dropped_gradients_leave_the_learner_as_after_its_last_step():
    learner = ppo_config(**TRAINING).build_learner()
    learner.forward_backward(ppo_batch(4))
    learner.optim_step()
    before = digest(learner.get_state())
    learner.forward_backward(ppo_batch(4, seed=1))
    learner.forward_backward(ppo_batch(4, seed=2))
    learner.drop_gradients()
    learner.drop_gradients()
    assert digest(learner.get_state()) == before
    with pytest.raises(UnfinishedStepError, match=r"drop_gradients\(\) was called"):
        learner.optim_step()


def test_a_step_without_gradients_is_an_error():
    learner = ppo_config().build_learner()
    with pytest.raises(UnfinishedStepError, match=r"call forward_backward\(batch\) first$"):
        learner.optim_step()
    with pytest.raises(NotBuiltError):
        Learner(config=ppo_config()).forward_backward(ppo_batch(4))


class Raises:
    """A listener that raises where it is told to."""

    at = ""

    def raise_at(self, where):
        if self.at == where:
            raise KeyError(where)

    @hookimpl
    def update_begun(self, learner):
        learner.stream("raises").normal()
        self.raise_at("begun")

    @hookimpl(wrapper=True)
    def compute_losses(self, learner):
        self.raise_at("losses")
        return (yield)

    @hookimpl(wrapper=True)
    def postprocess_gradients(self, learner):
        self.raise_at("postprocess")
        return (yield)

    @hookimpl(wrapper=True)
    def after_gradient_based_update(self, learner):
        self.raise_at("after")
        return (yield)

    @hookimpl
    def update_ended(self, learner, results):
        learner.set_weights(learner.get_weights())  # a listener may: the step is over
        self.raise_at("ended")


def both(learner, batch, timesteps=None):
    learner.forward_backward(batch)
    return learner.optim_step(timesteps=timesteps)


def built_with(plugin, config):
    learner = config.get_learner_class()(config=config, plugins=[plugin])
    learner.build()
    return learner


@pytest.mark.parametrize("where", ["begun", "losses", "postprocess", "after", "ended", "batch", "timesteps"])
def test_an_error_in_either_verb_undoes_to_the_last_step(where):
    raises = Raises()
    learner = built_with(raises, ppo_config(**TRAINING))
    learner.forward_backward(ppo_batch(4))
    learner.optim_step()
    before = digest_of_learner(learner)
    if where != "begun":
        learner.forward_backward(ppo_batch(4, seed=1))
    raises.at = where
    batch = {P: {}} if where == "batch" else ppo_batch(4, seed=2)
    timesteps = {"other": 1} if where == "timesteps" else None
    with pytest.raises((KeyError, BatchError)):
        both(learner, batch, timesteps)
    assert digest_of_learner(learner) == before
    raises.at = ""
    with pytest.raises(UnfinishedStepError, match="Those of earlier calls were dropped"):
        learner.optim_step()
    again = built_with(Raises(), ppo_config(**TRAINING))
    again.forward_backward(ppo_batch(4))
    again.optim_step()
    for each in (learner, again):
        each.forward_backward(ppo_batch(4, seed=3))
        each.optim_step()
    assert digest_of_learner(learner) == digest_of_learner(again)


def spoiled(rows, column="value_targets"):
    batch = ppo_batch(rows, seed=5)
    batch[column][1] = np.nan
    return batch


def infinite(learner, module_id, batch, fwd_out):
    return learner.ops.mean(fwd_out["vf_preds"]) * np.inf


@pytest.mark.parametrize(("batch", "loss"), [(spoiled(4), None), (ppo_batch(4), infinite)])
def test_what_is_not_finite_is_an_error_or_adds_nothing(batch, loss):
    raising = value_config(lr=0.05).build_learner()
    before = digest(raising.get_state())
    raising.forward_backward(ppo_batch(4))
    with pytest.raises(NonFiniteError, match="was undone"):
        raising.forward_backward(batch, loss)
    assert digest(raising.get_state()) == before

    skipping, without = (value_config(lr=0.05, nonfinite="skip").build_learner() for _ in range(2))
    for learner in (skipping, without):
        learner.forward_backward(ppo_batch(4))
        if learner is skipping:
            found = learner.forward_backward(batch, loss).result()
            assert found[ALL_MODULES]["num_nonfinite_minibatches"] == 1
        learner.forward_backward(ppo_batch(3, seed=1))
    results = [learner.optim_step().result() for learner in (skipping, without)]
    np.testing.assert_array_equal(weights(skipping), weights(without))
    assert results[0][ALL_MODULES]["num_nonfinite_minibatches"] == 1
    assert results[0][P]["total_loss"] == results[1][P]["total_loss"]


def test_a_step_of_which_all_is_skipped_changes_no_weight():
    learner = value_config(lr=0.05, nonfinite="skip").build_learner()
    before = weights(learner)
    learner.forward_backward(spoiled(4))
    results = learner.optim_step().result()
    np.testing.assert_array_equal(weights(learner), before)
    assert np.isnan(results[P]["total_loss"])
    assert learner.counters["num_skipped_updates_in_a_row"] == 1


class Infinite:
    """Spoils gradients after they are reduced."""

    @hookimpl(wrapper=True)
    def postprocess_gradients(self, learner):
        gradients = yield
        return {ref: gradient * np.inf for ref, gradient in gradients.items()}


@pytest.mark.parametrize("nonfinite", ["raise", "skip"])
def test_gradients_that_are_not_finite_when_they_are_applied(nonfinite):
    learner = built_with(Infinite(), value_config(lr=0.05, nonfinite=nonfinite))
    before = weights(learner)
    learner.forward_backward(ppo_batch(4))
    if nonfinite == "raise":
        with pytest.raises(NonFiniteError):
            learner.optim_step()
    else:
        assert learner.optim_step().result()[ALL_MODULES]["num_nonfinite_minibatches"] == 1
    np.testing.assert_array_equal(weights(learner), before)


def test_acting_between_the_verbs_is_not_undone():
    learner = ppo_config(**TRAINING).build_learner()
    learner.forward_backward(ppo_batch(4))
    first = learner.compute_actions(ppo_batch(64)["obs"])["actions"]
    learner.drop_gradients()
    assert not np.array_equal(first, learner.compute_actions(ppo_batch(64)["obs"])["actions"])


def test_schedules_move_with_the_step():
    config = value_config(lr=[[0, 0.1], [100, 0.0]])
    learner = config.build_learner()
    learner.forward_backward(ppo_batch(4))
    results = learner.optim_step(timesteps={"num_env_steps_sampled_lifetime": 50}).result()
    assert results[P]["default_optimizer_learning_rate"] == pytest.approx(0.05)


def test_a_learner_whose_step_is_its_own_has_no_halves():
    class Whole(ValueLearner):
        def _update(self, batch):
            return super()._update(batch)

    learner = value_config(learner_class=Whole).build_learner()
    with pytest.raises(ConfigError, match=r"has no halves: call update\(batch\)"):
        learner.forward_backward(ppo_batch(4))


def test_the_strict_backend_finds_nothing_in_the_halves():
    halves = ppo_config("strict", **TRAINING).build_learner()
    whole = ppo_config("strict", **TRAINING).build_learner()
    whole.update(ppo_batch(8))
    halves.forward_backward(part(ppo_batch(8), 0, 3))
    halves.forward_backward(part(ppo_batch(8), 3, 8))
    halves.optim_step()
    np.testing.assert_allclose(weights(halves), weights(whole), rtol=0, atol=1e-6)


# --- a group with a local learner ---


@pytest.fixture
def group():
    with LearnerGroup(config=ppo_config(**TRAINING)) as group:
        yield group


def test_the_verbs_of_a_group_are_those_of_its_learner(group):
    learner = ppo_config(**TRAINING).build_learner()
    for rows in (3, 5):
        (found,) = group.forward_backward(ppo_batch(rows)).result()
        assert found == learner.forward_backward(ppo_batch(rows)).result()
    future = group.optim_step()
    (found,) = future.result(timeout=1.0)
    assert (future.number, future.state) == (3, "applied")
    assert found[P]["total_loss"] == learner.optim_step().result()[P]["total_loss"]
    assert digest(group.get_state()["learner"]) == digest(learner.get_state())


def test_a_save_between_the_verbs_of_a_group_is_an_error(group, tmp_path):
    group.forward_backward(ppo_batch(4))
    for save in (lambda: group.save_to_path(tmp_path), group.get_state, lambda: group.update(ppo_batch(4))):
        with pytest.raises(UnfinishedStepError, match=r"call optim_step\(\) first"):
            save()
    group.drop_gradients()
    group.save_to_path(tmp_path)


def test_verbs_that_were_submitted_before_an_error_was_seen_fail_with_it(group):
    before = digest(group.get_state())
    good, bad, late, step = (
        group.forward_backward(ppo_batch(4)),
        group.forward_backward({P: {}}),
        group.forward_backward(ppo_batch(4, seed=1)),
        group.optim_step(),
    )
    assert [each.state for each in (good, bad, late, step)] == ["applied", "failed", "failed", "failed"]
    with pytest.raises(UnfinishedStepError, match="nothing of this step is applied, because forward_b"):
        step.result()
    assert digest(group.get_state()) == before
    # The next step begins anew; so does one after an error that was seen.
    group.forward_backward(ppo_batch(4))
    with pytest.raises(BatchError):
        group.forward_backward({P: {}}).result()
    group.forward_backward(ppo_batch(5))
    (results,) = group.optim_step().result()
    assert results[P]["num_module_steps_trained"] == 5


# --- several learners ---


@pytest.mark.parametrize("accumulate", [1, 2])
def test_learners_of_a_group_take_their_shares_of_each_call_and_exchange_gradients_once(accumulate):
    config = ppo_config(lr=0.05, grad_clip=0.5, optimizer={"type": "sgd"}, use_kl_loss=True)
    one = config.build_learner()
    learners = [config.training(accumulate=accumulate).build_learner() for _ in range(3)]
    batch, losses = ppo_batch(13), {}

    def train(learner):
        found = [
            learner.forward_backward(part(batch, first, last)).result()[P]["total_loss"]
            for first, last in ((0, 2), (2, 13))  # two rows for three learners
        ]
        losses[id(learner)] = [*found, learner.optim_step().result()[P]["total_loss"]]

    exchanges = take_turns(learners, train)
    # Of each call its metrics and a barrier, of the step gradients and a barrier.
    assert exchanges == [6] * 3
    (first, second, third) = losses.values()
    assert first == second == third
    assert first[-1] == pytest.approx(one.update(batch)[P]["total_loss"], abs=1e-6)
    assert first[-1] == pytest.approx((2 * first[0] + 11 * first[1]) / 13, abs=1e-6)
    for learner in learners:
        np.testing.assert_allclose(weights(learner), weights(one), rtol=0, atol=1e-6)
        np.testing.assert_array_equal(weights(learner), weights(learners[0]))


def infinite_somewhere(learner, module_id, batch, fwd_out):
    ops, values = learner.ops, fwd_out["vf_preds"]
    return ops.mean(ops.where(batch["value_targets"] > 50.0, values * np.inf, values))


def test_a_share_that_is_not_finite_is_skipped_by_all():
    config = value_config(lr=0.05, nonfinite="skip", optimizer={"type": "sgd"})
    learners, one = [config.build_learner() for _ in range(3)], config.build_learner()
    bad = ppo_batch(9)
    bad["value_targets"][8] = 100.0  # of the last learner
    skipped = {}

    def train(learner):
        learner.forward_backward(ppo_batch(7))
        found = learner.forward_backward(bad, infinite_somewhere).result()
        skipped[id(learner)] = found[ALL_MODULES]["num_nonfinite_minibatches"]
        learner.optim_step()

    take_turns(learners, train)
    assert [*skipped.values()] == [1, 1, 1]
    one.forward_backward(ppo_batch(7))
    one.optim_step()
    for learner in learners:
        np.testing.assert_allclose(weights(learner), weights(one), rtol=0, atol=1e-6)


def test_a_learner_of_a_group_that_lacks_calls_of_the_others_takes_no_step():
    learner = ppo_config(lr=0.05).build_learner()
    before = digest(learner.get_state())
    learner._verbs.forward_backward(ppo_batch(4), None, after=0)
    with pytest.raises(UnfinishedStepError, match="the gradients of 2 calls of forward_backward are lost"):
        learner._verbs.optim_step(None, after=2)
    assert digest(learner.get_state()) == before


@pytest.mark.parametrize("lost", ["forward_backward", "optim_step"])
def test_a_queue_that_is_full_drops_no_part_of_a_step_silently(group, lost):
    """Neither a step without one of its calls, nor a next step on top of one that was not taken."""
    group._requests = BackgroundRequestQueue(1, "drop_newest")
    before = digest(group.get_state())
    group.forward_backward(ppo_batch(4)).result()
    release = threading.Event()
    busy = group._requests.submit(lambda: [] if release.wait(10) else [{}])
    verbs = [lambda: group.forward_backward(ppo_batch(4)), group.optim_step]
    at, after = verbs if lost == "forward_backward" else verbs[::-1]
    assert at().state == "dropped"
    release.set()
    assert busy.result() == []
    with pytest.raises(UnfinishedStepError, match=f"because {lost}, submission 3, failed: it was dropped"):
        after().result()
    assert digest(group.get_state()) == before
