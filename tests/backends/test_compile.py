"""Every `compile` mode gives the numbers of `none`, is compiled once, and falls back in words."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest

from plugrad import Learner, hookimpl
from plugrad.errors import NonFiniteError
from plugrad_ppo import PPOConfig

pytestmark = pytest.mark.cross_product

MODES = ["none", "complete_update"]
OBSERVATIONS = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)


def config(backend: str, mode: str, **training: Any) -> PPOConfig:
    spaces = {"observation_space": OBSERVATIONS, "action_space": gym.spaces.Discrete(2)}
    settings = {"optimizer": {"eps": 1e-5}, "use_kl_loss": True, "minibatch_size": 8, **training}
    network = {"fcnet_hiddens": [4]}
    plain = PPOConfig().environment(**spaces).framework(backend, compile=mode).debugging(seed=0)
    return plain.rl_module(model_config=network).training(**settings)


def built(chosen: PPOConfig, cls: type[Learner] = Learner, plugins: tuple[Any, ...] = ()) -> Learner:
    learner = cls(config=chosen, plugins=plugins)
    learner.build()
    return learner


def make_batch(rows: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    inputs = rng.normal(0.0, 0.1, (rows, 2)).astype(np.float32)
    logp = inputs - np.log(np.exp(inputs).sum(-1, keepdims=True))
    actions = rng.integers(0, 2, rows)
    return {
        "obs": rng.uniform(-1.0, 1.0, (rows, 4)).astype(np.float32),
        "actions": actions,
        "action_dist_inputs": inputs,
        "action_logp": logp[np.arange(rows), actions],
        "advantages": rng.standard_normal(rows).astype(np.float32),
        "value_targets": rng.standard_normal(rows).astype(np.float32),
    }


def flat_weights(learner: Learner) -> Any:
    return np.concatenate([np.ravel(each) for each in learner.get_weights()["default_policy"].values()])


class CountsTraces(Learner):
    traces = 0

    def compute_loss_for_module(self, **arguments: Any) -> Any:
        self.traces += 1
        return super().compute_loss_for_module(**arguments)


@pytest.mark.parametrize(("mode", "rows"), [("complete_update", 128), ("forward_train", 32)])
def test_one_long_update_equals_the_plain_mode(backend: str, mode: str, rows: int) -> None:
    results = {}
    weights = {}
    for each in ("none", mode):
        learner = built(config(backend, each))
        results[each] = learner.update(make_batch(rows))["default_policy"]
        weights[each] = flat_weights(learner)
        assert learner.update_mode.startswith(each)
    np.testing.assert_allclose(weights[mode], weights["none"], rtol=0.0, atol=5e-6)
    for name, value in results["none"].items():
        assert results[mode][name] == pytest.approx(value, rel=1e-4, abs=1e-5), name


def test_many_short_updates_equal_the_plain_mode(backend: str) -> None:
    weights = []
    for each in ("none", "complete_update"):
        learner = built(config(backend, each, num_epochs=1, lr=[[0, 1e-3], [10000, 1e-4]]))
        for n in range(10):
            learner.update(make_batch(32, seed=n), timesteps={"num_env_steps_sampled_lifetime": 1000 * n})
        weights.append(flat_weights(learner))
    np.testing.assert_allclose(weights[1], weights[0], rtol=0.0, atol=1e-5)


def test_a_changing_number_of_rows_traces_a_few_times_and_changes_no_number(backend: str) -> None:
    plain = built(config(backend, "none", num_epochs=2))
    compiled = built(config(backend, "complete_update", num_epochs=2), CountsTraces)
    assert isinstance(compiled, CountsTraces)
    for n in range(8):
        batch = make_batch(17 + 5 * n, seed=n)
        plain.update(batch)
        compiled.update(batch)
    assert compiled.traces <= 3
    np.testing.assert_allclose(flat_weights(compiled), flat_weights(plain), rtol=0.0, atol=5e-6)


def test_data_learning_rate_and_coefficients_change_without_a_new_trace(backend: str) -> None:
    schedules = {"lr": [[0, 1e-3], [1000, 0.0]], "entropy_coeff": [[0, 0.1], [1000, 0.0]]}
    learner = built(config(backend, "complete_update", num_epochs=1, **schedules), CountsTraces)
    assert isinstance(learner, CountsTraces)
    outputs = []
    for n in range(5):
        learner.update(make_batch(32, seed=n), timesteps={"num_env_steps_sampled_lifetime": 200 * n})
        acted = learner.compute_actions(make_batch(4)["obs"], explore=False)
        outputs.append(acted["action_dist_inputs"].tolist())
    assert learner.traces == 1
    assert all(one != other for one, other in pairwise(outputs)), "it acts with weights of an update before"
    rate = learner.update(make_batch(32), timesteps={"num_env_steps_sampled_lifetime": 1000})
    assert rate["default_policy"]["default_optimizer_learning_rate"] == 0.0
    before = flat_weights(learner)
    learner.update(make_batch(32, seed=99))
    np.testing.assert_array_equal(flat_weights(learner), before)


class DoublesLosses:
    @hookimpl(wrapper=True)
    def compute_losses(self) -> Any:
        losses = yield
        return {module_id: 2.0 * loss for module_id, loss in losses.items()}


@pytest.mark.parametrize("mode", MODES)
def test_a_wrapper_is_compiled_with_what_it_wraps(backend: str, mode: str) -> None:
    settings = {"optimizer": {"type": "sgd"}, "grad_clip": None, "num_epochs": 1, "minibatch_size": None}
    once, twice = (
        built(config(backend, mode, **settings), plugins=plugins) for plugins in ((), (DoublesLosses(),))
    )
    start = flat_weights(once)
    for learner in (once, twice):
        learner.update(make_batch(64))
    moved = flat_weights(once) - start
    np.testing.assert_allclose(flat_weights(twice) - start, 2.0 * moved, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize(("mode", "bad"), [("none", np.inf), ("none", -np.inf), ("complete_update", np.nan)])
def test_a_value_that_is_not_finite_is_undone_or_skipped(backend: str, mode: str, bad: float) -> None:
    batch = make_batch(16)
    batch["advantages"][3] = bad
    settings = {"num_epochs": 1, "shuffle_batch_per_epoch": False}
    raising = built(config(backend, mode, **settings))
    before = flat_weights(raising)
    with pytest.raises(NonFiniteError, match="advantages"):
        raising.update(batch)
    np.testing.assert_array_equal(flat_weights(raising), before)

    skipping = built(config(backend, mode, nonfinite="skip", **settings))
    results = skipping.update(batch)
    assert results["__all_modules__"]["num_nonfinite_minibatches"] == 1
    assert np.isfinite(results["default_policy"]["total_loss"])
    only_good = built(config(backend, mode, nonfinite="skip", **settings))
    only_good.update({column: values[8:] for column, values in batch.items()})
    np.testing.assert_allclose(flat_weights(skipping), flat_weights(only_good), rtol=0.0, atol=1e-7)


def test_a_module_is_its_own_again_after_a_compiled_update(backend: str) -> None:
    learner = built(config(backend, "complete_update", num_epochs=1))
    learner.update(make_batch(8))
    obs = make_batch(8)["obs"]
    module = learner.module["default_policy"]
    outputs = learner._convert_to_numpy(module.forward_train(learner._convert_batch_type({"obs": obs})))
    values = learner.compute_values(obs)
    np.testing.assert_allclose(outputs["vf_preds"], values, rtol=1e-5, atol=1e-6)


def test_numbers_with_a_gradient_are_read_one_by_one_and_together(backend: str) -> None:
    learner = built(config(backend, "none"))
    module = learner.module["default_policy"]
    outputs = module.forward_train(learner._convert_batch_type({"obs": make_batch(8)["obs"]}))
    means = {name: learner.ops.mean(each) for name, each in outputs.items()}
    together = learner._convert_to_numpy(means)
    for name, each in means.items():
        assert together[name] == learner._convert_to_numpy(each)


class BranchesOnTensor(Learner):
    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Mapping[str, Any], fwd_out: Mapping[str, Any]
    ) -> Any:
        loss = self.ops.mean(self.ops.square(fwd_out["vf_preds"] - batch["value_targets"]))
        return loss if float(loss) > 0.0 else -loss


def test_torch_says_why_a_loss_is_not_compiled_and_trains_eagerly() -> None:
    needs.backend("torch")
    learner = built(config("torch", "complete_update", num_epochs=1), BranchesOnTensor)
    before = flat_weights(learner)
    learner.update(make_batch(64))
    assert learner.update_mode.startswith("none: eager, because the loss of BranchesOnTensor")
    assert not np.array_equal(flat_weights(learner), before)


class ComparesTensor(Learner):
    def compute_loss_for_module(self, **arguments: Any) -> Any:
        loss = super().compute_loss_for_module(**arguments)
        return loss if loss > 0.0 else -loss


def test_jax_says_why_a_loss_is_not_compiled_and_trains_eagerly() -> None:
    needs.backend("jax")
    learner, eager = (built(config("jax", mode, num_epochs=1), ComparesTensor) for mode in ("auto", "none"))
    for each in (learner, eager):
        each.update(make_batch(64))
    assert learner.update_mode.startswith("none: eager, because the loss of ComparesTensor"), (
        learner.update_mode
    )
    np.testing.assert_allclose(flat_weights(learner), flat_weights(eager), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_tf2_names_the_learner_whose_loss_cannot_be_traced(mode: str) -> None:
    needs.backend("tf2")
    learner = built(config("tf2", mode, num_epochs=1), BranchesOnTensor)
    before = flat_weights(learner)
    with pytest.raises(TypeError) as caught:
        learner.update(make_batch(64))
    assert any("the update of BranchesOnTensor" in note for note in caught.value.__notes__)
    np.testing.assert_array_equal(flat_weights(learner), before)


def test_tf2_compiles_the_whole_update_with_xla_by_itself() -> None:
    needs.backend("tf2")
    learner = built(config("tf2", "auto", num_epochs=1), CountsTraces)
    assert isinstance(learner, CountsTraces)
    for n in range(4):
        learner.update(make_batch(16, seed=n))
    assert learner.update_mode == "complete_update: the whole update as one XLA program"
    assert learner.traces == 1


def test_tf2_leaves_xla_when_the_size_of_a_minibatch_keeps_changing() -> None:
    needs.backend("tf2")
    settings = {"num_epochs": 1, "minibatch_size": None}
    auto, plain = built(config("tf2", "auto", **settings)), built(config("tf2", "none", **settings))
    for n in range(6):
        for learner in (auto, plain):
            learner.update(make_batch(40 + n, seed=n))
    assert auto.update_mode.startswith("complete_update: the whole update as one graph without XLA, because")
    np.testing.assert_allclose(flat_weights(auto), flat_weights(plain), rtol=0.0, atol=1e-5)


def test_an_update_of_many_epochs_is_as_many_of_few(backend):
    """Its table of row numbers goes to the program in pieces; two half as long ones fit into one each."""
    settings = {"minibatch_size": 4096, "shuffle_batch_per_epoch": False, "use_kl_loss": False}
    short, long = (built(config(backend, "auto", **settings)) for _ in "12")
    batch = make_batch(4096)
    means = [short.update(batch, num_epochs=33)["default_policy"]["total_loss"] for _ in range(2)]
    found = long.update(batch, num_epochs=66)["default_policy"]["total_loss"]
    assert np.array_equal(flat_weights(long), flat_weights(short))
    assert found == pytest.approx(np.mean(means), rel=1e-5)
