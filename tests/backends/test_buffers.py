"""Buffers of users' models are state: saved, restored, undone and shared as parameters are."""

import warnings

import needs
import numpy as np
import pytest
from learning import digest, ppo_batch, ppo_config, quick
from statistics_models import STATISTICS, normed, statistics

from plugrad import DEFAULT_MODULE_ID, Columns
from plugrad.errors import NonFiniteError, RestoreMismatchError
from plugrad_listeners import GradientNoiseScale
from plugrad_ppo import PPOLearner

pytestmark = pytest.mark.cross_product

P = DEFAULT_MODULE_ID
MODES = ["none", "forward_train", "complete_update", "auto"]
OBS = ppo_batch(8, seed=7)[Columns.OBS]


def learner_of(backend, module, mode="none", **training):
    settings = {"lr": 0.01, "minibatch_size": 16, **training}
    config = ppo_config(backend, **settings).framework(backend, compile=mode, device="cpu")
    learner = PPOLearner(config=config, module=module)
    learner.build()
    return learner


def trained(learner, updates=2):
    for n in range(updates):
        learner.update(ppo_batch(32, seed=n))
    return learner


def outputs(learner):
    greedy = learner.compute_actions(OBS, explore=False)[Columns.ACTION_DIST_INPUTS]
    return np.concatenate([greedy, learner.compute_values(OBS)[:, None]], 1)


def batch_of_no_numbers():
    """Its advantages are finite, and the loss is not."""
    return {**ppo_batch(32), Columns.ACTION_LOGP: np.full(32, -1e30, np.float32)}


def test_statistics_have_the_frameworks_own_names(backend):
    weights = trained(learner_of(backend, normed(backend))).get_weights()[P]
    assert set(STATISTICS[backend]) < set(weights)
    if backend == "torch":
        assert weights["model.body.1.num_batches_tracked"] == 4  # updates of two minibatches


@pytest.mark.parametrize("mode", MODES)
def test_statistics_are_saved_restored_and_undone_in_every_mode(backend, mode, tmp_path):
    learner = learner_of(backend, normed(backend), mode)
    first = digest(statistics(learner))
    trained(learner)
    assert learner.update_mode.startswith(
        "none" if (backend, mode) == ("torch", "auto") else mode.replace("auto", "complete_update")
    )
    moved = digest(statistics(learner))
    assert all(moved[name] != first[name] for name in first)
    expected, before = outputs(learner), digest(learner.get_state())

    with pytest.raises(NonFiniteError):
        learner.update(batch_of_no_numbers())
    assert digest(learner.get_state()) == before
    np.testing.assert_array_equal(outputs(learner), expected)

    learner.save_to_path(tmp_path)
    again = PPOLearner.from_checkpoint(tmp_path, module=normed(backend, seed=5))
    assert digest(statistics(again)) == moved
    np.testing.assert_allclose(outputs(again), expected, rtol=0, atol=1e-6)

    other = learner_of(backend, normed(backend, seed=6))
    other.set_weights(learner.get_weights())
    np.testing.assert_allclose(outputs(other), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("mode", ["none", "complete_update"])
def test_a_skipped_minibatch_leaves_the_statistics_as_they_were(backend, mode):
    """Its rows would move them, were it not for the loss."""
    learner = trained(learner_of(backend, normed(backend), mode, nonfinite="skip"))
    before = digest(statistics(learner))
    learner.update(batch_of_no_numbers())
    assert digest(statistics(learner)) == before
    half = ppo_batch(32, seed=3)
    half[Columns.ACTION_LOGP][:16] = -1e30
    learner.update(half)
    other = learner_of(backend, normed(backend), mode, nonfinite="skip")
    other.set_state(trained(learner_of(backend, normed(backend), mode, nonfinite="skip")).get_state())
    other.update({name: values[16:] for name, values in half.items()})
    for name, values in statistics(other).items():
        np.testing.assert_allclose(statistics(learner)[name], values, rtol=0, atol=1e-6)


def test_an_error_after_the_last_step_undoes_the_statistics(backend):
    class Late(PPOLearner):
        def after_gradient_based_update(self, *, timesteps):
            raise KeyError("late")

    learner = Late(config=quick(ppo_config(backend)), module=normed(backend))
    learner.build()
    before = digest(statistics(learner))
    with pytest.raises(KeyError):
        learner.update(ppo_batch(32))
    assert digest(statistics(learner)) == before


def test_a_state_without_statistics_opens_with_a_warning_that_names_them(backend, tmp_path):
    """As checkpoints were that were saved before they were part of the state."""
    learner = trained(learner_of(backend, normed(backend)))
    present = learner.get_state()
    old = learner.get_state()
    for name in STATISTICS[backend]:
        del old["rl_module"][P][name]
    other = learner_of(backend, normed(backend, seed=5))
    own = digest(statistics(other))
    for take in (lambda: other.set_state(old), lambda: other.set_weights(old["rl_module"])):
        with pytest.warns(
            UserWarning, match=f"no values of {P}/{STATISTICS[backend][0]}, .*stay as they are"
        ):
            take()
        assert digest(statistics(other)) == own
        parameters = {name for name in present["rl_module"][P] if name not in STATISTICS[backend]}
        found, expected = other.get_weights()[P], present["rl_module"][P]
        assert all(np.array_equal(found[name], expected[name]) for name in parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.set_state(present)
    del old["rl_module"][P][min(parameters)]  # of the first layer; frameworks also keep what is no parameter
    before = digest(other.get_state())
    with pytest.raises(RestoreMismatchError, match="missing"), pytest.warns(match="no values of"):
        other.set_state(old)
    assert digest(other.get_state()) == before


def frozen(backend):
    """A model whose body is not trained, in a layer that is frozen as the framework does it."""
    model = normed(backend, dropout=0.0)
    if backend == "torch":
        model.body[0].requires_grad_(False)
        return model, ("model.body.0.weight", "model.body.0.bias")
    if backend == "jax":
        from flax import nnx

        model.body.kernel, model.body.bias = (
            nnx.Variable(each.get_value()) for each in (model.body.kernel, model.body.bias)
        )
        return model, ("model.body.kernel", "model.body.bias")
    model.body.layers[0].trainable = False
    return model, ("model.0.kernel", "model.1.bias")


@pytest.mark.parametrize("mode", ["none", "complete_update"])
def test_frozen_parameters_are_state_and_stay(backend, mode, tmp_path):
    model, names = frozen(backend)
    learner = learner_of(backend, model, mode)
    first = learner.get_weights()[P]
    trained(learner)
    assert learner.update_mode.startswith(f"{mode}:")
    (optimizer,) = learner.registered_optimizers.values()
    assert not {f"{P}/{name}" for name in names} & set(optimizer.refs)
    after = learner.get_weights()[P]
    changed = {name for name in after if not np.array_equal(after[name], first[name])}
    assert set(after) - changed == set(names)
    learner.save_to_path(tmp_path)
    again = PPOLearner.from_checkpoint(tmp_path, module=frozen(backend)[0])
    assert digest(again.get_weights()) == digest(learner.get_weights())


def test_statistics_come_and_go_with_their_module(backend):
    learner = learner_of(backend, {"a": normed(backend, dropout=0.0), "b": normed(backend, seed=1)})
    alone = learner_of(backend, {"a": normed(backend, dropout=0.0)})
    for each in (learner, alone):
        each.update({"a": ppo_batch(32)})
    assert digest(statistics(learner, "a")) == digest(statistics(alone, "a"))
    untouched = digest(statistics(learner_of(backend, {"b": normed(backend, seed=1)}), "b"))
    assert digest(statistics(learner, "b")) == untouched
    before = digest(statistics(learner, "a"))
    learner.remove_module("b")
    assert digest(statistics(learner, "a")) == before
    with pytest.raises(NonFiniteError):
        learner.update({"a": batch_of_no_numbers()})
    assert digest(statistics(learner, "a")) == before


@needs.backends("torch")
def test_buffers_that_no_state_dict_has_are_no_state_and_are_constants_of_a_program():
    import torch

    class Masked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0]), persistent=False)
            self.register_buffer("allowed", torch.tensor([True, False, True]))
            self.head = torch.nn.Linear(3, 3)

        def forward(self, obs):
            outputs = self.head(obs * self.mask * self.allowed)
            return outputs[:, :2], outputs[:, 2:]

    learner = trained(learner_of("torch", Masked(), "complete_update"))
    weights = learner.get_weights()[P]
    assert set(weights) == {"model.allowed", "model.head.bias", "model.head.weight"}
    assert weights["model.allowed"].tolist() == [True, False, True]
    assert learner.update_mode.startswith("complete_update: the whole update one compiled function")


@pytest.mark.parametrize("mode", ["none", "complete_update"])
def test_a_minibatch_moves_the_statistics_once_whatever_looks_at_it(backend, mode):
    """Eight rows are as many as the model is wide: the search for wrong broadcasts looks at other rows, too."""
    watched, plain = (normed(backend, dropout=0.0) for _ in range(2))
    learner = learner_of(backend, watched, mode, minibatch_size=8, lr=0.0)
    noise = PPOLearner(config=learner.config, module=plain, plugins=[GradientNoiseScale()])
    noise.build()
    rows = ppo_batch(8)
    for each in (learner, noise):
        each.update(rows)
    expected = _moved_once(backend, rows[Columns.OBS])
    for each in (learner, noise):
        for name, values in expected.items():
            np.testing.assert_allclose(statistics(each)[name], values, rtol=0, atol=1e-6, err_msg=name)


def _moved_once(backend, obs):
    """What one forward pass in training mode makes of the statistics of a new model."""
    model = normed(backend, dropout=0.0)
    if backend == "torch":
        import torch

        model.train()(torch.tensor(obs))
        normal = model.body[1]
        return {
            "model.body.1.running_mean": normal.running_mean.numpy(),
            "model.body.1.running_var": normal.running_var.numpy(),
            "model.body.1.num_batches_tracked": 1,
        }
    if backend == "jax":
        model.train()
        model(obs)
        return {"model.norm.mean": model.norm.mean.get_value(), "model.norm.var": model.norm.var.get_value()}
    model(obs, training=True)
    normal = model.body.layers[1]
    return {
        "model.4.moving_mean": normal.moving_mean.numpy(),
        "model.5.moving_variance": normal.moving_variance.numpy(),
    }
