"""Tiny learners and batches for the tests of updates: a few dozen parameters, so that the numpy backend is quick."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad import DEFAULT_MODULE_ID, AlgorithmConfig, Columns, Learner, MultiRLModuleSpec, RLModuleSpec
from plugrad.testing.tiny_learners import digest as digest
from plugrad.testing.tiny_learners import flat
from plugrad_ppo import PPOConfig

OBSERVATIONS = gym.spaces.Box(-np.inf, np.inf, (3,))
TWO_ACTIONS = gym.spaces.Discrete(2)
LOOKS = {"jax": 1}
"""How often losses are computed beforehand, to find wrong broadcasts where a backend records no operations.

A copy of the learner does it: what its class counts in itself does not grow."""


@dataclass(frozen=True, kw_only=True)
class PlainConfig(AlgorithmConfig):
    """Of no algorithm: the loss is the learner class's."""


class ValueLearner(Learner):
    """Its loss is the mean squared error of the values: framework-neutral, and any batch with targets will do."""

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        error = fwd_out[Columns.VF_PREDS] - batch[Columns.VALUE_TARGETS]
        return self.ops.mean(self.ops.square(error))


def ppo_config(backend: str = "numpy", *, hiddens=(4,), seed: int = 1, **training: Any) -> PPOConfig:
    """PPO on 3 observations and 2 actions: 47 parameters."""
    return _tiny(PPOConfig(), backend, hiddens, seed).training(
        **{"minibatch_size": None, "num_epochs": 1, "shuffle_batch_per_epoch": False, **training}
    )


def value_config(
    backend: str = "numpy", *, learner_class=ValueLearner, hiddens=(4,), seed=1, **training: Any
):
    """A plain config for a learner class with a loss of its own."""
    config = _tiny(PlainConfig(), backend, hiddens, seed).learners(learner_class=learner_class)
    return config.training(**{"shuffle_batch_per_epoch": False, **training})


def _tiny(config, backend, hiddens, seed):
    return (
        config.framework(backend)
        .environment(observation_space=OBSERVATIONS, action_space=TWO_ACTIONS)
        .rl_module(model_config={"fcnet_hiddens": list(hiddens)})
        .debugging(seed=seed)
    )


def quick_mode(backend: str) -> str:
    """The `compile` that costs least for a few updates: JAX compiles each operation that runs outside a program."""
    return "auto" if backend == "jax" else "none"


def quick(config, **framework):
    """As for tests that are not about the mode."""
    return config.framework(config.backend, **{"compile": quick_mode(config.backend), **framework})


def with_modules(config, *module_ids: str):
    """The config with these modules, all alike."""
    spec = RLModuleSpec(
        observation_space=config.observation_space,
        action_space=config.action_space,
        model_config=config.model_config,
    )
    specs = MultiRLModuleSpec(rl_module_specs=dict.fromkeys(module_ids, spec))
    return config.rl_module(rl_module_spec=specs)


def ppo_batch(rows: int = 16, seed: int = 0, *, inputs: int = 3, actions: int = 2) -> dict[str, np.ndarray]:
    """What PPO's loss reads, as an old policy would have left it; not of any learner's own weights."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=0.2, size=(rows, actions)).astype(np.float32)
    chosen = rng.integers(actions, size=rows)
    logps = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return {
        Columns.OBS: rng.normal(size=(rows, inputs)).astype(np.float32),
        Columns.ACTIONS: chosen,
        Columns.ACTION_DIST_INPUTS: logits,
        Columns.ACTION_LOGP: logps[np.arange(rows), chosen],
        Columns.ADVANTAGES: rng.normal(size=rows).astype(np.float32),
        Columns.VALUE_TARGETS: rng.normal(size=rows).astype(np.float32),
    }


def largest_difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """The largest absolute difference of two nested dicts of arrays with the same names."""
    one, other = flat(one), flat(other)
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


def weights(learner: Learner, module_id: str = DEFAULT_MODULE_ID) -> np.ndarray:
    """All weights of one module in one vector."""
    return np.concatenate([np.ravel(each) for each in learner.get_weights()[module_id].values()])
