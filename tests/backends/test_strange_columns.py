"""Columns that are no rows of numbers: errors that name the column and the module, and change nothing."""

import gymnasium as gym
import needs
import numpy as np
import pytest
from learning import OBSERVATIONS, digest, ppo_batch, ppo_config

from plugrad import DEFAULT_MODULE_ID, Columns, RLModuleSpec, hookimpl
from plugrad.errors import BatchError, MissingColumnError
from plugrad_impala import APPOConfig, IMPALAConfig
from plugrad_ppo import PPOLearner

P = DEFAULT_MODULE_ID


def test_a_column_that_still_has_a_graph_is_refused():
    torch = needs.backend("torch")
    learner = ppo_config("torch").framework("torch", compile="none").build_learner()
    plain = torch.tensor(ppo_batch()["advantages"])
    learner.update({**ppo_batch(), "advantages": plain})
    before = digest(learner.get_state())
    for strange in (plain.clone().requires_grad_(True), plain.clone().requires_grad_(True) * 1.0):
        with pytest.raises(BatchError, match=rf"module '{P}', column 'advantages': .*\.detach\(\) it"):
            learner.update({**ppo_batch(), "advantages": strange})
    assert digest(learner.get_state()) == before
    learner.update({**ppo_batch(), "advantages": strange.detach()})


TENSORS = {
    "torch": lambda framework, values: framework.tensor(values),
    "tf2": lambda framework, values: framework.constant(values),
    "jax": lambda framework, values: framework.numpy.array(values),
}


@pytest.mark.parametrize("other", TENSORS)
def test_tensors_of_any_framework_are_trained_on_like_arrays(backend, other):
    framework = needs.backend(other)
    config = ppo_config(backend, minibatch_size=16).framework(backend, compile="none")
    one, expected = (config.build_learner() for _ in range(2))
    given = {**ppo_batch(), "nobody's": np.zeros(16, np.float32)}
    one.update({column: TENSORS[other](framework, values) for column, values in given.items()})
    expected.update(ppo_batch())
    assert digest(one.get_state()) == digest(expected.get_state())


class Elsewhere:
    """A tensor on a device that numpy does not read, or one that numpy reads as something else."""

    dtype = np.dtype(np.float32)

    def __init__(self, shape, array):
        self.shape, self._array = shape, array

    def __array__(self, *args, **kwargs):
        if self._array is None:
            raise TypeError("cannot be read from this device")
        return self._array


@pytest.mark.parametrize("array", [None, np.array(0.0), np.zeros(15, np.float32), np.array({}, dtype=object)])
def test_a_tensor_that_is_no_array_is_refused_by_column_with_what_to_type(backend, array):
    learner = ppo_config(backend).framework(backend, compile="none").build_learner()
    before = digest(learner.get_state())
    for column in ("advantages", "obs", "nobody's"):
        shape = ppo_batch()[column].shape if column in ppo_batch() else (16,)
        with pytest.raises(
            BatchError, match=rf"module '{P}', column \"?'?{column}.*Elsewhere.*\.numpy\(\)"
        ) as caught:
            learner.update({**ppo_batch(), column: Elsewhere(shape, array)})
        assert (caught.value.facts["module_id"], caught.value.facts["column"]) == (P, column)
    assert digest(learner.get_state()) == before


TEXTS = [np.array([{}] * 16), np.array(["a"] * 16), np.array([b"a"] * 16), ["a"] * 16, [{"x": 1}, {}] * 8]


@pytest.mark.parametrize("values", TEXTS)
@pytest.mark.parametrize("column", ["infos", "remarks"])
def test_objects_and_texts_that_nobody_reads_are_left_out(backend, column, values):
    config = ppo_config(backend, minibatch_size=16).framework(backend, compile="none")
    one, expected = (config.build_learner() for _ in range(2))
    one.update({**ppo_batch(), column: values})
    expected.update(ppo_batch())
    assert digest(one.get_state()) == digest(expected.get_state())


def test_objects_and_texts_that_a_loss_reads_are_refused_by_what_they_are(backend):
    class Reads(PPOLearner):
        def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
            return self.ops.mean(fwd_out["vf_preds"] * batch["remarks"])

    config = ppo_config(backend).framework(backend, compile="none").learners(learner_class=Reads)
    learner = config.build_learner()
    before = digest(learner.get_state())
    for values, found in (TEXTS[0], "object"), (TEXTS[1], "<U1"):
        expected = rf"module '{P}', column 'remarks': expected numbers or booleans, found dtype {found}"
        with pytest.raises(BatchError, match=expected):
            learner.update({**ppo_batch(), "remarks": values})
    with pytest.raises(MissingColumnError, match="column 'remarks'"):
        learner.update(ppo_batch())
    assert digest(learner.get_state()) == before
    learner.update({**ppo_batch(), "remarks": np.ones(16, np.float32)})


@pytest.mark.parametrize("config_class", [IMPALAConfig, APPOConfig])
def test_rows_without_sequences_are_refused_by_v_trace(config_class, backend):
    space = gym.spaces.Discrete(2)
    config = config_class().environment(observation_space=OBSERVATIONS, action_space=space)
    config = config.rl_module(model_config={"fcnet_hiddens": [4]}).framework(backend, compile="none")
    learner = config.debugging(seed=0).build_learner()
    before = digest(learner.get_state())
    rng = np.random.default_rng(0)
    rows = {
        "obs": rng.normal(size=(8, 3)).astype(np.float32),
        "actions": rng.integers(0, 2, 8),
        "rewards": rng.normal(size=8).astype(np.float32),
        "terminateds": np.zeros(8, bool),
        "vf_preds": np.zeros(8, np.float32),
        "action_logp": np.full(8, -0.7, np.float32),
        "action_dist_inputs": np.zeros((8, 2), np.float32),
    }
    with pytest.raises(BatchError, match=rf"module '{P}', column 'obs': expected sequences \[B, T"):
        learner.update(rows)
    assert digest(learner.get_state()) == before


@pytest.mark.parametrize("explore", [True, False])
def test_a_module_that_returns_tuple_actions_in_parts_is_told_to_return_rows(explore):
    torch = needs.backend("torch")
    from plugrad_torch import TorchRLModule

    class Own(TorchRLModule):
        def setup(self):
            self.pi = torch.nn.Linear(3, 5)

        def _forward(self, batch, **kwargs):
            rows = len(batch["obs"])
            parts = (torch.zeros(rows, dtype=torch.int64), torch.zeros(rows, 1))
            return {Columns.ACTION_DIST_INPUTS: self.pi(batch["obs"]), Columns.ACTIONS: parts}

    space = gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.Box(-2.0, 2.0, (1,), np.float32)])
    config = ppo_config("torch").environment(observation_space=OBSERVATIONS, action_space=space)
    learner = config.rl_module(rl_module_spec=RLModuleSpec(module_class=Own)).build_learner()
    with pytest.raises(
        BatchError, match=rf"module '{P}' \(Own\) returned the column 'actions' .*rows \[B, 2\]"
    ):
        learner.compute_actions(np.zeros((5, 3), np.float32), explore=explore)


def test_acting_after_an_undone_update_is_that_of_the_weights_that_were_put_back(backend):
    """Acting may keep copies of weights: those of an update that was undone are not used again."""
    learner = ppo_config(backend, lr=1.0).framework(backend, compile="none").build_learner()
    rows = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)

    def inputs():
        return learner.compute_actions(rows, explore=False)["action_dist_inputs"]

    before, during = inputs(), []

    class Broken(Exception):
        pass

    class Fails:
        @hookimpl
        def update_ended(self, results):
            during.append(inputs())
            raise Broken

    failing = type(learner)(config=learner.config, plugins=[Fails()])
    failing.build()
    failing.set_state(learner.get_state())
    learner = failing
    np.testing.assert_array_equal(inputs(), before)
    with pytest.raises(Broken):
        learner.update(ppo_batch())
    assert abs(during[0] - before).max() > 1e-2
    np.testing.assert_array_equal(inputs(), before)
