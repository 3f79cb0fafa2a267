"""Data on a device: tensors in `update` and `compute_actions` stay there, and give the numbers of numpy arrays."""

from importlib import import_module
from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest
from learning import OBSERVATIONS, ppo_batch, ppo_config, quick, weights

from plugrad import DEFAULT_MODULE_ID, Learner, losses, returns
from plugrad.errors import BatchError, ConfigError
from plugrad.learner.state.state import digest
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOLearner

P = DEFAULT_MODULE_ID
SPACES = {
    "discrete": gym.spaces.Discrete(3),
    "box": gym.spaces.Box(-1.0, 1.0, (2,)),
    "several": gym.spaces.MultiDiscrete([2, 2, 3]),
    "parts": gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.Box(-1.0, 1.0, (2,))]),
}


class Foreign:
    """A tensor of a library that nobody knows: it has DLPack's two methods, a shape and a dtype, and is no array."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype

    def __dlpack__(self, **settings: Any) -> Any:
        return self._array.__dlpack__(**settings)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def tensors(learner: Learner, batch: dict[str, Any]) -> dict[str, Any]:
    return learner._convert_batch_type(batch)


@pytest.mark.parametrize("name", SPACES)
def test_actions_as_tensors_are_those_of_numpy(backend, name):
    config = quick(ppo_config(backend)).environment(observation_space=OBSERVATIONS, action_space=SPACES[name])
    learner = config.build_learner()
    obs = ppo_batch(32)["obs"]
    there = tensors(learner, {"obs": obs})["obs"]
    for explore in (True, False):
        rngs = [np.random.default_rng(3) for _ in range(2)]
        expected = learner.compute_actions(obs, explore=explore, rng=rngs[0])
        found = learner.compute_actions(there, explore=explore, rng=rngs[1], as_tensors=True)
        assert found.keys() == expected.keys()
        assert not any(isinstance(each, np.ndarray) for each in found.values())
        for column, values in learner._convert_to_numpy(found).items():
            np.testing.assert_allclose(values, expected[column], rtol=1e-5, atol=1e-6, err_msg=column)
        assert rngs[0].random() == rngs[1].random()


def test_observations_of_any_library_with_dlpack_are_taken(backend):
    learner = quick(ppo_config(backend)).build_learner()
    obs = ppo_batch(8)["obs"]
    expected = learner.compute_actions(obs, explore=False)["action_dist_inputs"]
    found = learner.compute_actions(Foreign(obs), explore=False, as_tensors=True)["action_dist_inputs"]
    np.testing.assert_allclose(learner._convert_to_numpy(found), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(BatchError, match=r"'obs'.*__dlpack__.*list"):
        learner.compute_actions(obs.tolist(), as_tensors=True)


def test_what_acts_in_numpy_says_so(backend):
    box = {"observation_space": OBSERVATIONS, "action_space": gym.spaces.Discrete(3)}
    obs = ppo_batch(4)["obs"]
    recurrent = ppo_config(backend).rl_module(model_config={"use_gru": True, "gru_cell_size": 4})

    class Cautious(PPOLearner):
        def _get_exploration_inputs(self, *, module_id, fwd_out):
            return fwd_out["action_dist_inputs"] * 2.0

    for config, kind, why in (
        (quick(ppo_config(backend)).environment(**box), Cautious, "explores in numpy"),
        (quick(recurrent), None, "state"),
    ):
        learner = config.build_learner() if kind is None else kind(config=config)
        learner.build()
        before = digest(learner)
        with pytest.raises(ConfigError, match=f"as_tensors=True: .*{why}"):
            learner.compute_actions(obs, as_tensors=True)
        assert digest(learner) == before


def test_epsilon_greedy_actions_of_tensors_are_those_of_arrays(backend):
    config = DQNConfig().framework(backend).debugging(seed=1).training(epsilon=0.5)
    config = config.environment(observation_space=OBSERVATIONS, action_space=SPACES["discrete"])
    learner = quick(config).rl_module(model_config={"fcnet_hiddens": [4]}).build_learner()
    obs, mask = ppo_batch(32)["obs"], np.random.default_rng(0).random((32, 3)) < 0.6
    mask[:, 1] = True
    there = tensors(learner, {"obs": obs, "mask": mask})
    for masks in ({}, {"action_mask": mask}):
        rngs = [np.random.default_rng(3) for _ in range(2)]
        expected = learner.compute_actions(obs, rng=rngs[0], **masks)
        own = dict.fromkeys(masks, there["mask"])
        found = learner.compute_actions(there["obs"], rng=rngs[1], as_tensors=True, **own)
        for column in ("actions", "action_logp"):
            values = learner._convert_to_numpy(found[column])
            np.testing.assert_allclose(values, expected[column], rtol=1e-5, atol=1e-6, err_msg=column)
        assert len(set(expected["actions"].tolist())) == 3


def test_a_batch_of_tensors_trains_as_one_of_arrays(backend):
    config = quick(ppo_config(backend, minibatch_size=8, num_epochs=2, lr=1e-2))
    there, here, foreign = (config.build_learner() for _ in range(3))
    for n in range(2):
        batch = ppo_batch(20, seed=n)
        here.update(batch)
        there.update(tensors(there, batch))
        foreign.update({name: Foreign(values) for name, values in batch.items()})
    np.testing.assert_array_equal(weights(there), weights(here))
    np.testing.assert_array_equal(weights(foreign), weights(here))


def test_numbers_that_are_not_finite_are_found_in_tensors(backend):
    learner = quick(ppo_config(backend)).build_learner()
    batch = ppo_batch(8)
    batch["advantages"][3] = np.nan
    before = digest(learner)
    with pytest.raises(BatchError, match="'advantages'"):
        learner.update(tensors(learner, batch))
    assert digest(learner) == before


def test_an_update_of_torch_tensors_elsewhere_reads_back_twice():
    """Stands for a GPU: tensors whose DLPack device is CUDA's, and that count what is read from them on the host."""
    needs.backend("torch")
    torch = import_module("torch")
    reads = []

    class Elsewhere(torch.Tensor):
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if function.__name__ in {
                "numpy",
                "item",
                "tolist",
                "__array__",
                "__bool__",
                "__float__",
                "__int__",
            }:
                reads.append(function.__name__)
            return super().__torch_function__(function, types, args, kwargs)

    config = ppo_config("torch", minibatch_size=8, num_epochs=2, lr=1e-2).framework("torch", compile="none")
    there, here = config.build_learner(), config.build_learner()
    for n in range(3):
        reads.clear()
        batch = ppo_batch(20, seed=n)
        there.update({name: torch.as_tensor(values).as_subclass(Elsewhere) for name, values in batch.items()})
        here.update(batch)
        if n:  # the first one also looks for wrong broadcasts
            assert len(reads) <= 2, reads
    np.testing.assert_allclose(weights(there), weights(here), rtol=0, atol=1e-6)


@pytest.mark.parametrize("n", [1, 3, 30])
def test_returns_of_tensors_are_those_of_arrays(backend, n):
    """Advantages and n-step returns over ops, of episodes that end, are cut off and go on."""
    rng = np.random.default_rng(n)
    rewards, values, next_values = rng.normal(size=(3, 13, 4)).astype(np.float32)
    terminateds, truncateds = rng.random((2, 13, 4)) < 0.2
    ends = terminateds | truncateds
    ends[-1] = True
    learner = quick(ppo_config(backend)).build_learner()
    there = {"r": rewards, "v": values, "n": np.where(terminateds, np.float32(0.0), next_values), "e": ends}
    given = tensors(learner, there)
    ops = learner.ops
    flags = {"terminateds": terminateds, "truncateds": truncateds}
    expected = [
        *returns.generalized_advantage_estimation(rewards, values, next_values, 0.9, 0.8, **flags),
        returns.n_step_returns(rewards, 0.9, n, next_values=next_values, **flags),
        returns.n_step_returns(rewards, 0.9, n, **flags),
    ]
    r, v, next_v, e = given.values()
    found = [
        *losses.generalized_advantage_estimation(ops, r, v, next_v, e, 0.9, 0.8),
        losses.n_step_returns(ops, r, e, 0.9, n, next_values=next_v),
        losses.n_step_returns(ops, r, e, 0.9, n),
    ]
    for one, other in zip(learner._convert_to_numpy(found), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=2e-6)
    with pytest.raises(ConfigError, match="n=0"):
        losses.n_step_returns(ops, r, e, 0.9, 0)
