"""`learner.jvp` and `learner.hvp`: of users' own models too, and what cannot be computed is said in words."""

import numpy as np
import pytest
from learning import ppo_batch, ppo_config

from plugrad import DEFAULT_MODULE_ID, RLModuleSpec
from plugrad.errors import ConfigError, LossError
from plugrad.testing.tiny_learners import tiny_learner

P = DEFAULT_MODULE_ID
NETS = {"torch": "TorchNet", "tf2": "Tf2Net", "jax": "JaxNet"}


def scalar(learner):
    """Of policy and values: it bends in every weight but the last bias of the values, by which it is a parabola."""
    ops = learner.ops

    def compute():
        outputs = learner.module[P].forward_train({"obs": ops.asarray(ppo_batch(6)["obs"])})
        return ops.mean(
            ops.logsumexp(outputs["action_dist_inputs"], axis=-1) + ops.square(outputs["vf_preds"])
        )

    return compute


def moved(learner, vectors, step):
    weights = learner.get_weights()[P]
    learner.set_weights({P: {**weights, **{name: weights[name] + step * vectors[name] for name in vectors}}})


def test_derivatives_of_a_model_of_a_user_are_finite_differences_of_its_gradients(backend):
    spec = RLModuleSpec(module_class=f"model_classes:{NETS[backend]}", model_config={"width": 4})
    learner = ppo_config(backend).rl_module(rl_module_spec=spec).build_learner()
    rng, start = np.random.default_rng(0), learner.get_weights()[P]
    vectors = {name: rng.normal(size=each.shape).astype(np.float32) for name, each in start.items()}
    value, slope = map(learner._convert_to_numpy, learner.jvp(P, scalar(learner), vectors))
    gradients, products = map(learner._convert_to_numpy, learner.hvp(P, scalar(learner), vectors))
    assert {name: each.shape for name, each in products.items()} == {
        name: v.shape for name, v in vectors.items()
    }
    assert slope == pytest.approx(sum((gradients[name] * vectors[name]).sum() for name in vectors), rel=1e-5)
    np.testing.assert_array_equal(learner.get_weights()[P][min(start)], start[min(start)])
    found = []
    for step in (1e-2, -2e-2):
        moved(learner, vectors, step)
        gradients, _ = learner.hvp(P, scalar(learner), vectors)
        found.append(learner._convert_to_numpy(gradients))
    for name in vectors:
        expected = (found[0][name] - found[1][name]) / 2e-2
        np.testing.assert_allclose(products[name], expected, rtol=0, atol=2e-2, err_msg=name)
    assert np.isfinite(value)


def test_a_scalar_that_is_linear_in_a_parameter_has_no_curvature(backend):
    learner = ppo_config(backend).build_learner()
    last = max(name for name in learner.get_weights()[P] if name.startswith("vf") and "bias" in name)
    vectors = {last: np.ones_like(learner.get_weights()[P][last])}

    def values():
        obs = learner.ops.asarray(ppo_batch(4)["obs"])
        return learner.ops.mean(learner.module[P].forward_train({"obs": obs})["vf_preds"])

    gradients, products = map(learner._convert_to_numpy, learner.hvp(P, values, vectors))
    np.testing.assert_array_equal(products[last], np.zeros_like(vectors[last]))
    assert gradients.keys() == vectors.keys()


def test_what_cannot_be_computed_says_what_was_expected(backend):
    learner = ppo_config(backend).build_learner()
    name, weight = next(iter(learner.get_weights()[P].items()))
    assert name.startswith("pi")

    def values_alone():
        obs = learner.ops.asarray(ppo_batch(4)["obs"])
        return learner.ops.mean(learner.module[P].forward_train({"obs": obs})["vf_preds"])

    for compute in (learner.jvp, learner.hvp):
        with pytest.raises(ConfigError, match=r"'pi\.nothing': no such parameter; expected .*vf"):
            compute(P, scalar(learner), {"pi.nothing": weight})
        with pytest.raises(ConfigError, match=rf"{name}': shape \[7\]; expected shape"):
            compute(P, scalar(learner), {name: np.ones(7, np.float32)})
        with pytest.raises(ConfigError, match="are empty: give one of"):
            compute(P, scalar(learner), {})
        with pytest.raises(LossError, match=r"gave 1\.0; it must be a scalar tensor"):
            compute(P, lambda: 1.0, {name: weight})
        with pytest.raises(LossError, match=r"gave shape \[3\]; it must be a scalar tensor"):
            compute(P, lambda: learner.ops.asarray(np.ones(3, np.float32)), {name: weight})
        with pytest.raises(LossError, match="no gradient reaches a parameter"):
            compute(P, lambda: learner.ops.asarray(np.float32(2.0)), {name: weight})
        with pytest.raises(LossError, match="no gradient reaches a parameter"):
            compute(P, values_alone, {name: weight})


def test_a_backend_without_the_capability_says_so():
    learner = tiny_learner("strict")
    with pytest.raises(
        ConfigError, match=r"learner\.hvp: backend 'strict' does not declare 'second_derivatives'"
    ):
        learner.hvp(P, lambda: None, {})
