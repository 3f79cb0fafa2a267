"""The Learner where the framework matters: gradients, clips and steps in its tensors, its modules, its modes.

The first four follow RLlib's own tests of a Learner (`core/learner/tests/test_learner.py`), by behaviour.
"""

import numpy as np
import pytest
from learning import (
    OBSERVATIONS,
    TWO_ACTIONS,
    ValueLearner,
    digest,
    flat,
    ppo_batch,
    ppo_config,
    quick,
    value_config,
    weights,
    with_modules,
)

from plugrad import DEFAULT_MODULE_ID, Columns, RLModuleSpec
from plugrad.errors import MissingColumnError, NonFiniteError, OptimizerError

pytestmark = pytest.mark.cross_product

P = DEFAULT_MODULE_ID


def gradients_of_the_sum(learner, backend):
    """`compute_gradients` as a user calls it, on loss = sum of all parameters of a module."""

    def losses(add):
        return {
            module_id: sum(add(param) for param in learner.get_parameters(learner.module[module_id]))
            for module_id in learner.module
        }

    if backend == "torch":
        return learner.compute_gradients(losses(lambda param: param.sum()))
    if (
        backend == "jax"
    ):  # which differentiates functions: the tensors are those that the modules compute with
        variables = [each.parameters for each in learner.registered_optimizers.values()]
        tensors = {module_id: learner.module[module_id]._tensors for module_id in learner.module}

        def sums():
            return {m: sum(each.sum() for each in of().values()) for m, of in tensors.items()}, None

        return learner._differentiate(variables, sums)[2]
    import tensorflow as tf

    with tf.GradientTape() as tape:
        summed = losses(tf.reduce_sum)
    return learner.compute_gradients(summed, gradient_tape=tape)


# --- as RLlib tests it ---


@pytest.mark.smoke
def test_gradients_of_the_sum_are_ones_for_every_parameter(backend):
    learner = with_modules(quick(ppo_config(backend)), "a", "b").build_learner()
    for _ in range(2):  # the second call must not add to the first
        gradients = gradients_of_the_sum(learner, backend)
        params = [param for mid in "ab" for param in learner.get_parameters(learner.module[mid])]
        assert sorted(gradients) == sorted(learner.get_param_ref(param) for param in params)
        for param in params:
            gradient = learner._convert_to_numpy(gradients[learner.get_param_ref(param)])
            np.testing.assert_array_equal(gradient, np.ones(tuple(param.shape), np.float32))


@pytest.mark.parametrize(
    ("by", "limit"), [("value", 0.75), ("norm", 1.0), ("global_norm", 5.0), ("global_norm", 1e3)]
)
def test_gradients_are_clipped_by_value_by_norm_and_by_global_norm(backend, by, limit):
    learner = quick(ppo_config(backend, grad_clip=limit, grad_clip_by=by)).build_learner()
    raw = {f"{P}/{name}": weight + 1.0 for name, weight in learner.get_weights()[P].items()}
    clipped = learner.postprocess_gradients(learner._convert_batch_type(raw))
    norm = np.sqrt(sum(np.square(gradient, dtype=np.float64).sum() for gradient in raw.values()))
    for ref, gradient in raw.items():
        expected = {
            "value": lambda g: g.clip(-limit, limit),
            "norm": lambda g: g * min(1.0, limit / np.linalg.norm(g)),
            "global_norm": lambda g: g * min(1.0, limit / norm),
        }[by](gradient)
        np.testing.assert_allclose(learner._convert_to_numpy(clipped[ref]), expected, rtol=2e-6, atol=1e-7)
    assert learner.metrics.results[P]["gradients_default_optimizer_global_norm"] == pytest.approx(
        norm, rel=1e-6
    )


def test_a_hundred_steps_of_adam_on_ones_move_each_parameter_by_a_hundred_rates(backend):
    rate = 3e-4
    learner = quick(ppo_config(backend, lr=rate)).build_learner()
    start = learner.get_weights()[P]
    ones = learner._convert_batch_type(
        {f"{P}/{name}": np.ones_like(weight) for name, weight in start.items()}
    )
    for _ in range(100):
        learner.apply_gradients(ones)
    for name, weight in learner.get_weights()[P].items():
        np.testing.assert_allclose(weight, start[name] - 100 * rate, atol=1e-5)


def test_a_learner_lowers_its_loss(backend):
    config = value_config(
        backend, hiddens=(16,), lr=0.01, minibatch_size=32, num_epochs=2, shuffle_batch_per_epoch=True
    )
    learner = quick(config).build_learner()
    batch = ppo_batch(64)
    batch[Columns.VALUE_TARGETS] = np.tanh(batch[Columns.OBS] @ np.array([1.0, -2.0, 0.5])).astype(np.float32)
    losses = [learner.update(batch)[P]["total_loss"] for _ in range(60)]
    assert losses[-1] < 0.1 * losses[0]


# --- the core's promises, in this framework's tensors ---


@pytest.mark.smoke
def test_equal_seeds_give_equal_weights_on_every_backend(backend):
    def learner(name):
        return with_modules(quick(ppo_config(name, hiddens=(8, 8), seed=3)), "a", "b").build_learner()

    found = learner(backend).get_weights()
    assert digest(found) == digest(learner(backend).get_weights()) == digest(learner("numpy").get_weights())
    assert list(flat(found)) == list(flat(learner("numpy").get_weights()))


def test_results_are_plain_values(backend):
    results = quick(ppo_config(backend, use_kl_loss=True)).build_learner().update(ppo_batch())
    assert all(type(value) in (float, int) for value in flat(results).values())


def test_schedules_reach_a_program_that_was_traced_before(backend):
    config = ppo_config(backend, lr=[[0, 0.01], [10, 0.0]], entropy_coeff=[[0, 0.0], [10, 1.0]])
    learner = quick(config).build_learner()
    first = learner.update(ppo_batch())[P]
    assert first["total_loss"] == pytest.approx(first["policy_loss"] + 0.5 * first["vf_loss"], abs=1e-5)
    learner.update(ppo_batch(), timesteps={"num_env_steps_sampled_lifetime": 10})
    before = weights(learner)
    last = learner.update(ppo_batch())[P]
    assert last["total_loss"] == pytest.approx(
        last["policy_loss"] + 0.5 * last["vf_loss"] - last["entropy"], abs=1e-5
    )
    np.testing.assert_array_equal(weights(learner), before)


def test_an_error_undoes_the_update_and_the_next_one_goes_on(backend):
    config = ppo_config(backend, minibatch_size=8, use_kl_loss=True, shuffle_batch_per_epoch=True)
    learner, undisturbed = config.build_learner(), config.build_learner()
    for each in (learner, undisturbed):
        each.update(ppo_batch())
    before = digest(learner.get_state())
    poisoned = ppo_batch(seed=1)
    poisoned[Columns.VALUE_TARGETS][-1] = np.nan
    incomplete = {name: each for name, each in ppo_batch().items() if name != Columns.ADVANTAGES}
    for batch, error in ((poisoned, NonFiniteError), (incomplete, MissingColumnError)):
        with pytest.raises(error, match=P):
            learner.update(batch)
        assert digest(learner.get_state()) == before
    for each in (learner, undisturbed):
        each.update(ppo_batch(seed=2))
    assert digest(learner.get_state()) == digest(undisturbed.get_state())


# --- batches ---


def _read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def _native(backend):
    if backend == "torch":
        import torch

        return torch.tensor
    if backend == "jax":
        import jax.numpy as jnp

        return jnp.asarray
    import tensorflow as tf

    return tf.constant


FORMS = {
    "read-only": lambda backend: _read_only,
    "every second row": lambda backend: lambda array: np.repeat(array, 2, 0)[::2],
    "backwards": lambda backend: lambda array: array[::-1].copy()[::-1],
    "transposed": lambda backend: lambda array: np.asarray(array.T, order="C").T,
    "float64": lambda backend: lambda array: array.astype(np.float64) if array.dtype.kind == "f" else array,
    "long double": lambda backend: (
        lambda array: array.astype(np.longdouble) if array.dtype.kind == "f" else array
    ),
    "big-endian": lambda backend: lambda array: array.astype(array.dtype.newbyteorder(">")),
    "unsigned": lambda backend: lambda array: array.astype(np.uint64) if array.dtype.kind == "i" else array,
    "small integers": lambda backend: (
        lambda array: array.astype(np.int32) if array.dtype.kind == "i" else array
    ),
    "the backend's tensors": _native,
}


@pytest.fixture(scope="module")
def usual(backend):
    learner = quick(ppo_config(backend, minibatch_size=8, num_epochs=2)).build_learner()
    state = learner.get_state()
    learner.update(ppo_batch())
    return learner, state, digest(learner.get_state())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("form", FORMS)
def test_arrays_of_every_form_are_good_batches(backend, usual, form):
    learner, state, expected = usual
    learner.set_state(state)
    learner.update({column: FORMS[form](backend)(values) for column, values in ppo_batch().items()})
    assert digest(learner.get_state()) == expected


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "uint16", "float16", "float64", "bool"])
def test_numbers_of_every_kind_are_good_where_a_float_is_read(backend, usual, dtype):
    learner, state, _ = usual
    rng = np.random.default_rng(0)
    read = {
        Columns.OBS: rng.integers(2, size=(16, 3)),
        Columns.ADVANTAGES: rng.integers(2, size=16),
        Columns.VALUE_TARGETS: rng.integers(2, size=16),
    }
    digests = []
    for each in ("float32", dtype):
        learner.set_state(state)
        learner.update({**ppo_batch(), **{column: values.astype(each) for column, values in read.items()}})
        digests.append(digest(learner.get_state()))
    assert digests[0] == digests[1]


# --- modules of the user's own ---


def torch_module_class():
    import torch

    from plugrad_torch import TorchRLModule

    class Own(TorchRLModule):
        def setup(self):
            torch.manual_seed(0)
            self.body = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Tanh())
            self.heads = torch.nn.ModuleDict({"pi": torch.nn.Linear(16, 2), "vf": torch.nn.Linear(16, 1)})
            self.frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)

        def _forward(self, batch, **kwargs):
            features = self.body(batch[Columns.OBS])
            inputs, values = self.heads["pi"](features) * self.frozen, self.heads["vf"](features)
            return {Columns.ACTION_DIST_INPUTS: inputs, Columns.VF_PREDS: values[:, 0]}

    return Own


def tf2_module_class():
    import tensorflow as tf

    from plugrad_tf2 import Tf2RLModule

    class Own(Tf2RLModule):
        def setup(self):
            tf.random.set_seed(0)

            def layer(inputs, outputs):  # variables without names of their own
                return [
                    tf.Variable(tf.random.normal([inputs, outputs], stddev=0.5)),
                    tf.Variable(tf.zeros([outputs])),
                ]

            self.body = layer(3, 16)
            self.heads = {"pi": layer(16, 2), "vf": layer(16, 1)}
            self.frozen = tf.Variable(tf.ones([2]), trainable=False)

        def _forward(self, batch, **kwargs):
            features = tf.tanh(batch[Columns.OBS] @ self.body[0] + self.body[1])
            inputs, values = (features @ weight + bias for weight, bias in self.heads.values())
            return {Columns.ACTION_DIST_INPUTS: inputs * self.frozen, Columns.VF_PREDS: values[:, 0]}

    return Own


def keras_module_class():
    import tensorflow as tf

    from plugrad_tf2 import Tf2RLModule

    class Own(Tf2RLModule):
        def setup(self):
            tf.keras.utils.set_random_seed(0)
            self.body = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(16, "tanh")])
            self.heads = {"pi": tf.keras.layers.Dense(2), "vf": tf.keras.layers.Dense(1)}
            for head in self.heads.values():
                head.build((None, 16))
            self.frozen = tf.Variable(tf.ones([2]), trainable=False)

        def _forward(self, batch, **kwargs):
            features = self.body(batch[Columns.OBS])
            inputs, values = self.heads["pi"](features) * self.frozen, self.heads["vf"](features)
            return {Columns.ACTION_DIST_INPUTS: inputs, Columns.VF_PREDS: values[:, 0]}

    return Own


def jax_module_class():
    import jax.numpy as jnp
    from flax import nnx

    from plugrad_jax import JaxRLModule

    class Own(JaxRLModule):
        def setup(self):
            rngs = nnx.Rngs(0)
            self.body = nnx.Sequential(nnx.Linear(3, 16, rngs=rngs), nnx.tanh)
            self.pi, self.vf = nnx.Linear(16, 2, rngs=rngs), nnx.Linear(16, 1, rngs=rngs)
            self.frozen = nnx.Variable(jnp.ones(2))

        def _forward(self, batch, **kwargs):
            features = self.body(batch[Columns.OBS])
            inputs, values = self.pi(features) * self.frozen, self.vf(features)
            return {Columns.ACTION_DIST_INPUTS: inputs, Columns.VF_PREDS: values[:, 0]}

    return Own


OWN_MODULES = {
    "torch": [torch_module_class],
    "tf2": [tf2_module_class, keras_module_class],
    "jax": [jax_module_class],
}


def own_module_configs(backend):
    for make in OWN_MODULES[backend]:
        yield ppo_config(backend, lr=0.01, minibatch_size=16, num_epochs=2).rl_module(
            rl_module_spec=RLModuleSpec(module_class=make())
        )


def test_a_module_of_the_users_own_trains_and_lowers_its_loss(backend):
    batch = ppo_batch(32)
    for config in own_module_configs(backend):
        learner = config.build_learner()
        start = learner.get_weights()[P]
        assert sum(weight.size for weight in start.values()) == 3 * 16 + 16 + 16 * 2 + 2 + 16 + 1 + 2
        losses = [learner.update(batch)[P]["total_loss"] for _ in range(40)]
        assert losses[-1] < losses[0] - 0.2
        for name, weight in learner.get_weights()[P].items():
            assert np.array_equal(weight, start[name]) == (name == "frozen"), name


def test_a_module_of_the_users_own_acts_and_takes_states(backend):
    for config in own_module_configs(backend):
        learner, other = quick(config).build_learner(), quick(config).build_learner()
        learner.update(ppo_batch())
        other.set_state(learner.get_state())
        obs = ppo_batch()[Columns.OBS]
        np.testing.assert_array_equal(other.compute_values(obs), learner.compute_values(obs))
        columns = learner.compute_actions(obs)
        assert columns[Columns.ACTION_DIST_INPUTS].shape == (16, 2)
        for each in (learner, other):
            each.update({**ppo_batch(), **columns})
        assert digest(other.get_weights()) == digest(learner.get_weights())


def _touch(backend, module):
    """Halve all parameters, and do what users do to modules, by the framework's own means."""
    if backend == "torch":
        import torch

        module.zero_grad(set_to_none=True)
        module.double().float()
        with torch.no_grad():
            for param in module.parameters():
                param.mul_(0.5)
    elif backend == "jax":  # whose arrays nothing changes
        module.set_state({name: 0.5 * weight for name, weight in module.get_state().items()})
    else:
        for variable in module.named_weights().values():
            variable.assign(0.5 * variable)


def test_what_the_framework_did_to_the_parameters_counts(backend):
    touched, told = (quick(ppo_config(backend)).build_learner() for _ in range(2))
    for learner in (touched, told):
        learner.update(ppo_batch())
    _touch(backend, touched.module[P])
    told.set_weights({P: {name: 0.5 * weight for name, weight in told.get_weights()[P].items()}})
    assert digest(touched.get_weights()) == digest(told.get_weights())
    for learner in (touched, told):
        learner.update(ppo_batch())
    assert digest(touched.get_state()) == digest(told.get_state())


def test_a_framework_class_is_for_its_framework_only(backend):
    import importlib

    classes = {"torch": "TorchLearner", "tf2": "Tf2Learner", "jax": "JaxLearner"}
    own = getattr(importlib.import_module(f"plugrad_{backend}"), classes[backend])

    class Value(ValueLearner, own):
        pass

    learner = quick(value_config(backend, learner_class=Value)).build_learner()
    assert learner.framework == backend
    assert learner.update(ppo_batch())[P]["total_loss"] > 0.0
    with pytest.raises(ValueError, match=f"framework\\('{backend}'\\)"):
        own(config=ppo_config("numpy"))


def test_parameters_must_be_this_frameworks(backend):
    learner = quick(ppo_config(backend)).build_learner()
    with pytest.raises(OptimizerError, match="params must be a list of"):
        learner.register_optimizer(
            module_id=P, optimizer_name="second", optimizer=learner.get_optimizer(), params=[np.zeros(3)]
        )


# --- modes ---


class CountingTraces(ValueLearner):
    """How often Python ran through the loss: once per trace, or once per step where nothing is traced."""

    traces = 0

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        self.traces += 1
        return super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )


def test_twenty_updates_with_changing_data_and_rows_are_traced_once_where_they_are_traced(backend):
    config = value_config(
        backend, learner_class=CountingTraces, lr=[[0, 0.01], [1000, 0.001]], minibatch_size=16, num_epochs=2
    )
    learner = config.build_learner()
    for n in range(20):
        learner.update(ppo_batch(45 + n, seed=n), timesteps={"num_env_steps_sampled_lifetime": 45 * n})
    steps = sum(-(-2 * (45 + n) // 16) for n in range(20))
    assert learner.traces == (steps if backend == "torch" else 1)


@pytest.mark.parametrize(
    ("mode", "runs"),
    [
        (
            "none",
            {
                "torch": "none: eager torch",
                "tf2": "none: one traced function per minibatch",
                "jax": "none: eager JAX",
            },
        ),
        (
            "auto",
            {
                "torch": "none: eager torch",
                "tf2": "complete_update: the whole update as one XLA program",
                "jax": "complete_update: the whole update as one XLA program",
            },
        ),
    ],
)
def test_a_learner_says_what_runs(backend, mode, runs):
    learner = value_config(backend).framework(backend, compile=mode).build_learner()
    assert learner.update_mode == "not decided before the first update"
    learner.update(ppo_batch())
    assert learner.update_mode.startswith(runs[backend])


def test_discrete_observations_and_continuous_actions_work_too(backend):
    spec = RLModuleSpec(observation_space=TWO_ACTIONS, action_space=OBSERVATIONS)
    learner = quick(value_config(backend, lr=0.05).rl_module(rl_module_spec=spec)).build_learner()
    obs = np.array([0, 1] * 8)
    targets = np.where(obs, 1.0, -1.0)
    for _ in range(50):
        learner.update({Columns.OBS: obs, Columns.VALUE_TARGETS: targets})
    assert learner.compute_values(np.array([1])) > learner.compute_values(np.array([0]))
    assert learner.compute_actions(obs)[Columns.ACTIONS].shape == (16, 3)
