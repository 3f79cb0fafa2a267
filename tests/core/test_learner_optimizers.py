"""Which optimizer steps which parameters: registration, look-up, learning rates, clips, shared optimizers."""

import numpy as np
import pytest
from learning import ValueLearner, digest, ppo_batch, ppo_config, value_config, weights, with_modules
from optimizer_learning import Shared, TwoOptimizers

from plugrad import ALL_MODULES, DEFAULT_MODULE_ID, DEFAULT_OPTIMIZER, Learner
from plugrad.errors import OptimizerError
from plugrad.optimizers import SGD, Adam

P = DEFAULT_MODULE_ID


class Unregistered(Learner):
    """Leaves all optimizers to the test."""

    def configure_optimizers(self):
        pass


@pytest.fixture
def bare():
    return ppo_config().learners(learner_class=Unregistered).build_learner()


def params_of(learner, module_id=P):
    return learner.get_parameters(learner.module[module_id])


# --- registration ---


def test_parameters_have_names_by_module_in_the_networks_order():
    learner = with_modules(ppo_config(), "a", "b").build_learner()
    refs = [learner.get_param_ref(param) for param in params_of(learner, "b")]
    assert refs[:2] == ["b/pi.0.weight", "b/pi.0.bias"]
    assert refs == [f"b/{name}" for name in learner.get_weights()["b"]]


def test_a_name_is_taken_once_per_module(bare):
    params = params_of(bare)
    bare.register_optimizer(module_id=P, optimizer_name="one", optimizer=Adam(), params=params[:2])
    with pytest.raises(OptimizerError, match="'default_policy' has an optimizer 'one' already"):
        bare.register_optimizer(module_id=P, optimizer_name="one", optimizer=Adam(), params=params[2:])
    bare.register_optimizer(module_id=P, optimizer_name="two", optimizer=Adam(), params=params[2:])
    assert [name for name, _ in bare.get_optimizers_for_module(P)] == ["one", "two"]


@pytest.mark.parametrize(
    "make",
    [
        tuple,
        iter,
        lambda params: params[0],
        lambda params: [],
        lambda params: [np.zeros(3)],
        lambda params: None,
    ],
    ids=["tuple", "iterator", "one parameter", "empty", "an array", "None"],
)
def test_params_must_be_a_list_of_parameters(bare, make):
    with pytest.raises(OptimizerError, match="params must be a list"):
        bare.register_optimizer(module_id=P, optimizer=Adam(), params=make(params_of(bare)))
    assert bare.get_optimizers_for_module() == []


def test_an_optimizer_must_be_one_of_plugrads(bare):
    with pytest.raises(OptimizerError, match="str is no optimizer"):
        bare.register_optimizer(module_id=P, optimizer="adam", params=params_of(bare))


def test_a_parameter_has_one_optimizer_and_an_optimizer_one_registration(bare):
    params, optimizer = params_of(bare), Adam()
    bare.register_optimizer(module_id=P, optimizer_name="one", optimizer=optimizer, params=params[:2])
    with pytest.raises(OptimizerError, match=r"default_policy/pi\.0\.bias.*'default_policy_one' already"):
        bare.register_optimizer(module_id=P, optimizer_name="two", optimizer=Adam(), params=params[1:])
    with pytest.raises(OptimizerError, match="registered already"):
        bare.register_optimizer(module_id=P, optimizer_name="two", optimizer=optimizer, params=params[2:])


def test_parameters_of_another_learner_are_refused(bare):
    other = ppo_config().build_learner()
    with pytest.raises(OptimizerError, match="belongs to no module of this learner"):
        bare.register_optimizer(module_id=P, optimizer=Adam(), params=params_of(other))


# --- look-up ---


def test_an_optimizer_is_found_by_module_and_name():
    learner = with_modules(value_config(learner_class=TwoOptimizers), "a", "b").build_learner()
    a_vf = learner.get_optimizer("a", "vf")
    assert learner.get_optimizer(optimizer_name="a_vf") is a_vf
    assert [name for name, _ in learner.get_optimizers_for_module("b")] == ["pi", "vf"]
    assert (
        len(learner.get_optimizers_for_module()) == len(learner.get_optimizers_for_module(ALL_MODULES)) == 4
    )
    assert ("vf", a_vf) in learner.get_optimizers_for_module("a")
    for wrong in ({"module_id": "a"}, {"module_id": "c"}, {"optimizer_name": "vf"}):
        with pytest.raises(KeyError, match=r"no optimizer '.*'; there are: a_pi, a_vf, b_pi, b_vf"):
            learner.get_optimizer(**wrong)


def test_the_default_optimizer_is_found_without_a_name():
    learner = ppo_config().build_learner()
    assert learner.get_optimizers_for_module(P) == [(DEFAULT_OPTIMIZER, learner.get_optimizer())]


# --- learning rates ---


def test_an_optimizer_without_a_rate_is_left_to_the_user():
    class ByHand(ValueLearner):
        def configure_optimizers_for_module(self, module_id, config=None):
            params = self.get_parameters(self.module[module_id])
            self.register_optimizer(module_id=module_id, optimizer=SGD(), params=params)

    learner = value_config(learner_class=ByHand).build_learner()
    before = weights(learner)
    now = {"num_env_steps_sampled_lifetime": 10}
    assert learner.update(ppo_batch(), timesteps=now)[P]["default_optimizer_learning_rate"] == 0.0
    np.testing.assert_array_equal(weights(learner), before)
    learner._set_optimizer_lr(learner.get_optimizer(), 0.25)
    assert learner._get_optimizer_lr(learner.get_optimizer()) == 0.25
    assert learner.update(ppo_batch(), timesteps=now)[P]["default_optimizer_learning_rate"] == 0.25
    assert not np.array_equal(weights(learner), before)


def test_two_optimizers_of_a_module_follow_their_own_schedules():
    learner = value_config(learner_class=TwoOptimizers).build_learner()
    found = learner.update(ppo_batch(), timesteps={"num_env_steps_sampled_lifetime": 50})[P]
    assert found["pi_learning_rate"] == pytest.approx(0.1)
    assert found["vf_learning_rate"] == pytest.approx(0.1)
    found = learner.update(ppo_batch(), timesteps={"num_env_steps_sampled_lifetime": 100})[P]
    assert found["pi_learning_rate"] == pytest.approx(0.1)
    assert found["vf_learning_rate"] == 0.0
    before = learner.get_weights()[P]
    learner.update(ppo_batch())
    after = learner.get_weights()[P]
    moved = {name.split(".")[0] for name in before if not np.array_equal(before[name], after[name])}
    assert moved == {"pi"}


# --- steps ---


class Recording(ValueLearner):
    """Keeps the gradients of the last step, before and after clipping."""

    def postprocess_gradients(self, gradients_dict):
        self.raw = {ref: np.array(gradient) for ref, gradient in gradients_dict.items()}
        gradients = super().postprocess_gradients(gradients_dict)
        self.applied = {ref: np.array(gradient) for ref, gradient in gradients.items()}
        return gradients


def test_sgd_subtracts_the_rate_times_the_clipped_gradient():
    config = value_config(
        learner_class=Recording, optimizer={"type": "sgd"}, lr=0.5, grad_clip=0.1, grad_clip_by="value"
    )
    learner = config.build_learner()
    before = learner.get_weights()[P]
    results = learner.update(ppo_batch())[P]
    after = learner.get_weights()[P]
    for name, weight in before.items():
        np.testing.assert_allclose(learner.applied[f"{P}/{name}"], learner.raw[f"{P}/{name}"].clip(-0.1, 0.1))
        np.testing.assert_allclose(after[name], weight - 0.5 * learner.applied[f"{P}/{name}"], atol=1e-6)
    norm = np.sqrt(sum(np.square(gradient).sum() for gradient in learner.raw.values()))
    assert norm > 0.1
    assert results["gradients_default_optimizer_global_norm"] == pytest.approx(norm, rel=1e-5)


def test_each_optimizer_is_clipped_by_its_own_norm():
    class Both(Recording, TwoOptimizers):
        pass

    config = value_config(learner_class=Both, grad_clip=0.01, grad_clip_by="global_norm")
    learner = config.build_learner()
    results = learner.update(ppo_batch())[P]
    for prefix in ("pi", "vf"):
        raw, applied = (
            np.concatenate([np.ravel(g) for ref, g in each.items() if ref.startswith(f"{P}/{prefix}")])
            for each in (learner.raw, learner.applied)
        )
        norm = np.linalg.norm(raw)
        assert norm > 0.01
        assert results[f"gradients_{prefix}_global_norm"] == pytest.approx(norm, rel=1e-5)
        np.testing.assert_allclose(applied, raw * 0.01 / (norm + 1e-6), rtol=1e-5, atol=1e-12)


def test_a_shared_optimizer_steps_its_modules_and_is_clipped_as_one():
    config = with_modules(value_config(learner_class=Shared, lr=1.0), "a", "b", "c")
    clipped = config.training(grad_clip=0.01).build_learner()
    before = {module_id: weights(clipped, module_id) for module_id in "abc"}
    results = clipped.update({"a": ppo_batch(), "b": ppo_batch(seed=1)})
    step = np.concatenate([before[module_id] - weights(clipped, module_id) for module_id in "ab"])
    assert np.linalg.norm(step) == pytest.approx(0.01, rel=1e-3)
    assert (weights(clipped, "a") != before["a"]).any()
    assert (weights(clipped, "b") != before["b"]).any()
    np.testing.assert_array_equal(weights(clipped, "c"), before["c"])
    assert results[ALL_MODULES]["gradients_default_optimizer_global_norm"] > 0.01


def test_a_shared_optimizer_survives_a_round_trip_of_state():
    config = with_modules(value_config(learner_class=Shared), "a", "b")
    one, other = config.build_learner(), config.debugging(seed=9).build_learner()
    batch = {"a": ppo_batch(), "b": ppo_batch(seed=1)}
    one.update(batch)
    assert list(one.get_state("optimizer")["optimizer"]) == [f"{ALL_MODULES}_{DEFAULT_OPTIMIZER}"]
    other.set_state(one.get_state())
    one.update(batch)
    other.update(batch)
    assert digest(one.get_state()) == digest(other.get_state())


def test_frozen_parameters_without_an_optimizer_stay():
    class OnlyValues(ValueLearner):
        def configure_optimizers_for_module(self, module_id, config=None):
            params = self.get_parameters(self.module[module_id])
            own = [param for param in params if "/vf" in self.get_param_ref(param)]
            self.register_optimizer(module_id=module_id, optimizer=Adam(), params=own, lr_or_lr_schedule=0.1)
            self.freeze_parameters(module_id, ["pi"])

        def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
            loss = super().compute_loss_for_module(
                module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
            )
            return loss + self.ops.mean(fwd_out["action_dist_inputs"][:, 0])

    learner = value_config(learner_class=OnlyValues).build_learner()
    before = learner.get_weights()[P]
    learner.update(ppo_batch())
    after = learner.get_weights()[P]
    assert {name.split(".")[0] for name in before if not np.array_equal(before[name], after[name])} == {"vf"}


def test_a_plain_dict_of_gradients_is_as_good_and_none_leaves_a_parameter_out():
    class Doubling(ValueLearner):
        def compute_gradients(self, loss_per_module, **kwargs):
            gradients = super().compute_gradients(loss_per_module, **kwargs)
            return {ref: None if ref.endswith("bias") else 2.0 * g for ref, g in gradients.items()}

    sgd = {"optimizer": {"type": "sgd"}, "lr": 0.1}
    plain, doubling = value_config(**sgd).build_learner(), value_config(learner_class=Doubling, **sgd)
    doubling = doubling.build_learner()
    before = plain.get_weights()[P]
    plain.update(ppo_batch())
    doubling.update(ppo_batch())
    for name, start in before.items():
        expected = start if name.endswith("bias") else start + 2.0 * (plain.get_weights()[P][name] - start)
        np.testing.assert_allclose(doubling.get_weights()[P][name], expected, atol=1e-6)
