"""Columns that are no rows of numbers: errors that name the column and the module, and change nothing."""

import gymnasium as gym
import needs
import numpy as np
import pytest
from learning import OBSERVATIONS, digest, ppo_batch, ppo_config

from plugrad import DEFAULT_MODULE_ID, Columns, RLModuleSpec, hookimpl
from plugrad.errors import BatchError
from plugrad_impala import APPOConfig, IMPALAConfig

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
