"""n learners compute what one learner does on the whole batch, whatever their shares."""

import needs
import numpy as np
import pytest
from groups import Groups, group_config
from learning import flat, largest_difference, ppo_batch, with_modules
from threads import on_all

from plugrad import DEFAULT_MODULE_ID, Columns, Learner, LearnerGroup, MultiRLModuleSpec, RLModuleSpec
from plugrad.errors import BatchError, NonFiniteError
from plugrad.learner.state.state import digest as digest_of

P = DEFAULT_MODULE_ID
CLOCK = {"num_env_steps_sampled_lifetime": 500}


def masked(batch):
    """With two thirds of the rows hidden, all of them in the first half."""
    rows = len(batch[Columns.OBS])
    return {**batch, Columns.LOSS_MASK: np.arange(rows) >= 2 * rows // 3}


BATCHES = {
    "even": lambda n: ({P: ppo_batch(64, seed=n)}, {}),
    "1 of 255 rows over": lambda n: ({P: ppo_batch(255, seed=n)}, {}),
    "whole": lambda n: ({P: ppo_batch(7, seed=n)}, {"minibatch_size": 7}),
    "1 row": lambda n: ({P: ppo_batch(1, seed=n)}, {"minibatch_size": 1}),
    "masked": lambda n: ({P: masked(ppo_batch(60, seed=n))}, {}),
    "exact number": lambda n: ({P: ppo_batch(64, seed=n)}, {"num_total_minibatches": 3}),
}


def close(found, expected):
    """Within 1e-6 of the largest entry of each array, or of 1."""
    found, expected = flat(found), flat(expected)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if "time/" not in name:
            np.testing.assert_allclose(found[name], value, rtol=2e-6, atol=1e-6, err_msg=name)


@pytest.mark.cross_product(part=3)
@pytest.mark.parametrize("size", [2, 3])
def test_a_remote_group_is_one_learner(groups: Groups, backend: str, size: int) -> None:
    group, one = groups.get(backend, size), group_config(backend).build_learner()
    assert_same_gradients(group, one)
    for n, make in enumerate(BATCHES.values()):
        batch, settings = make(n)
        expected = one.update(batch, timesteps=CLOCK, **settings)
        results = group.update(batch, timesteps=CLOCK, **settings)
        assert len(results) == len(group) == size
        for found in results:
            close(found, expected)
        digests = group.foreach_learner(digest_of)
        assert len(set(digests)) == 1
        assert largest_difference(group.get_weights(), one.get_weights()) < 1e-6
    state = group.get_state()["learner"]
    assert state["counters"] == one.get_state()["counters"]
    assert state["streams"] == one.get_state()["streams"]


def assert_same_gradients(group: LearnerGroup, one: Learner) -> None:
    """After so long a step weights are gradients to the last digit; one module has 255 rows, the other 1."""
    begin = group.get_state()
    for each in (group, one):
        each.add_module(module_id="p1", module_spec=RLModuleSpec(model_config={"fcnet_hiddens": [8]}))
    group.set_state({"learner": one.get_state()})
    group.foreach_learner(take_long_steps)
    take_long_steps(one)
    batch = {P: ppo_batch(255), "p1": ppo_batch(1)}
    for each in (group, one):
        each.update(batch, minibatch_size=15, num_total_minibatches=1)
    found, expected = flat(group.get_weights()), flat(one.get_weights())
    for name, values in expected.items():
        largest = np.abs(values).max()
        assert largest > 1e-5 * STEP, name
        assert np.abs(found[name] - values).max() < 1e-6 * largest, name
    for each in (group, one):
        each.remove_module("p1")
    group.set_state(begin)
    one.set_state(begin["learner"])


STEP = 1e6


def take_long_steps(learner: Learner) -> None:
    for _, optimizer in learner.get_optimizers_for_module():
        learner._set_optimizer_lr(optimizer, STEP)


@pytest.mark.parametrize("size", [2, 3])
def test_modules_that_are_in_some_shares_only(size: int) -> None:
    config = with_modules(group_config("torch"), "a", "b", "c")
    learners, one = [config.build_learner() for _ in range(size)], config.build_learner()
    for rows in ((64, 1, 2), (1, 0, 255), (16, 16, 0)):
        batch = {name: ppo_batch(number, seed=number) for name, number in zip("abc", rows, strict=True)}
        expected = one.update(batch)
        for found in on_all(learners, lambda learner, batch=batch: learner.update(batch)):
            close(found, expected)
    assert len({digest_of(each) for each in learners}) == 1
    assert largest_difference(learners[0].get_weights(), one.get_weights()) < 1e-6


class OwnOptimizer(Learner):
    """Steps by an optimizer of the framework's own, one with a state."""

    def configure_optimizers_for_module(self, module_id, config=None):
        params = self.get_parameters(self.module[module_id])
        if self.config.backend == "torch":
            import torch

            optimizer = torch.optim.Adam(params, 0.01)
        elif self.config.backend == "jax":
            import optax

            optimizer = optax.inject_hyperparams(optax.adam)(learning_rate=0.01)
        else:
            import tensorflow as tf

            optimizer = tf.keras.optimizers.Adam(0.01)
        self.register_optimizer(module_id=module_id, optimizer=optimizer, params=params)


def test_remote_learners_step_by_an_optimizer_of_the_framework(backend: str) -> None:
    config = group_config(backend).learners(learner_class=OwnOptimizer)
    group, one = config.learners(num_learners=2).build_learner_group(), config.build_learner()
    try:
        assert digest_of(one) == group.foreach_learner(digest_of)[0]
        digests = set()
        for n in range(3):
            results, expected = group.update(ppo_batch(64, seed=n)), one.update(ppo_batch(64, seed=n))
            for found in results:
                close(found, expected)
            ours = set(group.foreach_learner(digest_of))
            assert len(ours) == 1
            digests |= ours
        assert len(digests) == 3, "what has moved has another digest"
        assert largest_difference(group.get_weights(), one.get_weights()) < 1e-6
    finally:
        group.shutdown()


class InfiniteOnOne(Learner):
    """Its loss is infinite on one learner only, and its gradients are what they were."""

    def compute_loss_for_module(self, **given):
        loss = super().compute_loss_for_module(**given)
        return loss + np.inf if self.collective.rank == 1 else loss


def test_a_loss_that_is_infinite_on_one_learner_is_an_error_on_all() -> None:
    config = group_config("torch").learners(learner_class=InfiniteOnOne)
    learners = [config.build_learner() for _ in range(3)]
    found = on_all(learners, lambda learner: learner.update(ppo_batch(64)))
    assert [type(each) for each in found] == [NonFiniteError] * 3


def test_a_minibatch_that_is_infinite_on_one_learner_is_skipped_by_all() -> None:
    config = group_config("torch", nonfinite="skip").learners(learner_class=InfiniteInOneMinibatch)
    learners = [config.build_learner() for _ in range(3)]
    results = on_all(learners, lambda learner: learner.update(ppo_batch(64)))
    assert [found["__all_modules__"]["num_nonfinite_minibatches"] for found in results] == [5, 5, 5]
    assert len({digest_of(each) for each in learners}) == 1
    alone = config.build_learner()
    alone.update(ppo_batch(64))
    assert largest_difference(learners[0].get_weights(), alone.get_weights()) < 1e-6


class InfiniteInOneMinibatch(Learner):
    """Its loss is infinite on one learner only, in its first five minibatches, and its gradients are what they were."""

    calls = 0

    def compute_loss_for_module(self, **given):
        loss = super().compute_loss_for_module(**given)
        self.calls += 1
        is_the_one = self.collective is None or self.collective.rank == 1
        return loss + np.inf if is_the_one and self.calls <= 5 else loss


SEQUENCES = RLModuleSpec(
    model_config={"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5}
)


def sequences(lengths, seed):
    """Columns [B, 5, ...], of which `lengths` are shown."""
    rows = ppo_batch(5 * len(lengths), seed=seed).items()
    states = np.random.default_rng(seed).normal(size=(4, len(lengths), 4)).astype(np.float32)
    return {
        **{name: values.reshape(len(lengths), 5, *values.shape[1:]) for name, values in rows},
        Columns.STATE_IN: dict(zip(("pi_h", "pi_c", "vf_h", "vf_c"), states, strict=True)),
        Columns.SEQ_LENS: np.array(lengths),
    }


def test_shares_of_sequences_count_by_their_steps(groups: Groups, backend: str) -> None:
    group, one = groups.get(backend, 2), group_config(backend).build_learner()
    for each in (group, one):
        each.add_module(module_id="lstm", module_spec=SEQUENCES)
        each.remove_module(P)
    for seed, lengths in enumerate(([5, 1, 1, 2, 5, 4, 3], [2, 1, 5, 5, 4])):
        batch = {"lstm": sequences(lengths, seed)}
        expected = one.update(batch)
        for found in group.update(batch):
            close(found, expected)
    assert largest_difference(group.get_weights(), one.get_weights()) < 1e-6


def three_modules(seed):
    """Sequences of random lengths for an LSTM, rows, and rows of which a random part is shown."""
    rng = np.random.default_rng(seed)
    return {
        "lstm": sequences(rng.integers(1, 6, 13), seed),
        "rows": ppo_batch(36, seed=seed + 1),
        "masked": {**ppo_batch(24, seed=seed + 2), Columns.LOSS_MASK: rng.random(24) < 0.4},
    }


@pytest.mark.cross_product(part=3)
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("accumulate", [1, 2, 4])
def test_accumulated_parts_of_several_learners_are_the_whole_batch(size: int, accumulate: int) -> None:
    rows = RLModuleSpec(model_config={"fcnet_hiddens": [8]})
    modules = MultiRLModuleSpec(rl_module_specs={"lstm": SEQUENCES, "rows": rows, "masked": rows})
    config = group_config("torch", minibatch_size=None, num_epochs=1).rl_module(rl_module_spec=modules)
    one, parted = config.build_learner(), config.training(accumulate=accumulate)
    learners = [parted.build_learner() for _ in range(size)]
    for seed in range(2):
        expected = one.update(three_modules(seed))
        for found in on_all(learners, lambda learner, seed=seed: learner.update(three_modules(seed))):
            close(found, expected)
    assert len({digest_of(each) for each in learners}) == 1
    assert largest_difference(learners[0].get_weights(), one.get_weights()) < 1e-6


def without_state(lengths, seed):
    """Sequences for a module that needs no state: they compile in a tenth of the time."""
    return {name: values for name, values in sequences(lengths, seed).items() if name != Columns.STATE_IN}


COMPILED = {
    "tf2": "complete_update: the whole update as one graph, XLA before and after the exchange",
    "jax": "complete_update: the whole update as one XLA program",
}
ACCUMULATED = {
    "rows": lambda seed: {P: ppo_batch(63, seed=seed)},
    "sequences": lambda seed: {P: without_state(np.random.default_rng(seed).integers(1, 6, 16), seed)},
}


@pytest.mark.cross_product(part=3)
@pytest.mark.parametrize(
    ("backend", "mode", "kind"),
    [
        pytest.param("torch", "none", "rows", marks=pytest.mark.long),
        ("torch", "complete_update", "sequences"),
        pytest.param("tf2", "none", "sequences", marks=pytest.mark.long),
        ("tf2", "auto", "sequences"),
        pytest.param("jax", "none", "rows", marks=pytest.mark.long),
        ("jax", "auto", "sequences"),
    ],
)
def test_accumulated_and_compiled_steps_are_those_of_one_learner(
    cluster, backend: str, mode: str, kind: str
) -> None:
    config = group_config(backend, accumulate=2, minibatch_size=7, grad_clip=0.1)
    one = config.framework(backend, compile="none").build_learner()
    many = config.framework(backend, compile=mode).learners(num_learners=2)
    with many.build_learner_group() as group:
        for seed in range(2):
            batch = ACCUMULATED[kind](seed)
            expected = one.update(batch, timesteps=CLOCK)
            for found in group.update(batch, timesteps=CLOCK):
                close(found, expected)
        (found, _) = group.foreach_learner(lambda learner: learner.update_mode)
        assert found.startswith(COMPILED[backend] if mode == "auto" else mode), found
        assert largest_difference(group.get_weights(), one.get_weights()) < 1e-6


@pytest.mark.long
@pytest.mark.parametrize("accumulate", [1, 2, 4])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(
    ("backend", "mode"),
    [("torch", "none"), ("torch", "complete_update"), ("tf2", "none"), ("tf2", "auto"), ("jax", "auto")],
)
def test_one_step_on_sequences_is_the_same_in_any_number_of_parts_and_learners(
    cluster, backend: str, mode: str, size: int, accumulate: int
) -> None:
    config = group_config(backend, minibatch_size=None, num_epochs=1)
    one = config.framework(backend, compile="none").build_learner()
    batch = ACCUMULATED["sequences"](5)
    before = one.get_weights()
    expected = one.update(batch, timesteps=CLOCK)
    many = config.training(accumulate=accumulate).framework(backend, compile=mode)
    with many.learners(num_learners=size).build_learner_group() as group:
        for found in group.update(batch, timesteps=CLOCK):
            close(found, expected)
        assert largest_difference(group.get_weights(), one.get_weights()) < 1e-6
        assert largest_difference(group.get_weights(), before) > 1e-4


class AsksTheHost(Learner):
    """Its loss calls Python, which XLA refuses."""

    def compute_loss_for_module(self, **arguments):
        import tensorflow as tf

        loss = super().compute_loss_for_module(**arguments)
        one = tf.numpy_function(lambda: np.float32(1.0), [], tf.float32)
        return loss * tf.reshape(one, [])


@pytest.mark.cross_product
@pytest.mark.parametrize("why", ["XLA refuses it", "the size of the minibatches keeps changing"])
def test_learners_on_tf2_that_leave_xla_go_on_as_one(cluster, why: str) -> None:
    needs.backend("tf2")
    cls = AsksTheHost if "refuses" in why else Learner
    config = group_config("tf2", minibatch_size=None, num_epochs=1)
    one = config.learners(learner_class=cls).build_learner()
    with config.learners(learner_class=cls, num_learners=2).build_learner_group() as group:
        for rows in range(20, 29):
            one.update(ppo_batch(rows, seed=rows), timesteps=CLOCK)
            group.update(ppo_batch(rows, seed=rows), timesteps=CLOCK)
        modes = group.foreach_learner(lambda learner: learner.update_mode)
        assert all(why in mode for mode in modes), modes
        assert largest_difference(group.get_weights(), one.get_weights()) < 1e-5


def test_a_ragged_column_is_the_error_that_it_is_locally(groups: Groups, backend: str) -> None:
    group, one = groups.get(backend, 2), group_config(backend).build_learner()
    batch = {**ppo_batch(4), Columns.ADVANTAGES: [[1.0], [1.0, 2.0], [3.0], [4.0]]}
    for each in (one, group):
        with pytest.raises(BatchError, match="column 'advantages': expected an array, found list"):
            each.update({P: batch})
