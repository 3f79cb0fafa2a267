"""Tiny learners and batches: a few dozen parameters, so that finite differences are quick.

The suites train them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.columns import Columns
from plugrad.learner import Learner
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad.results import flatten
from plugrad.types import DEFAULT_MODULE_ID, Array, ModuleID, Tensor

OBSERVATIONS = gym.spaces.Box(-np.inf, np.inf, (3,))
TWO_ACTIONS = gym.spaces.Discrete(2)

flat = flatten


@dataclass(frozen=True, kw_only=True)
class TinyConfig(AlgorithmConfig):
    """The config of no algorithm: the learner's class has the loss."""


class ActorCriticLearner(Learner):
    """Clipped surrogate, Huber's value error and an entropy bonus: most of what losses are made of."""

    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: Any, batch: Mapping[str, Tensor], fwd_out: Mapping[str, Tensor]
    ) -> Tensor:
        """See `AlgorithmSpec.compute_loss_for_module`: a scalar; reports its three parts."""
        ops = self.ops
        policy = self.module[module_id].get_train_action_dist_cls().from_logits(fwd_out["action_dist_inputs"])
        ratio = ops.exp(policy.logp(batch[Columns.ACTIONS]) - batch[Columns.ACTION_LOGP])
        advantages = batch[Columns.ADVANTAGES]
        surrogate = ops.minimum(ratio * advantages, ops.clip(ratio, 0.8, 1.2) * advantages)
        error = ops.huber(fwd_out[Columns.VF_PREDS] - batch[Columns.VALUE_TARGETS], 0.5)
        parts = {
            "policy_loss": -ops.mean(surrogate),
            "vf_loss": ops.mean(error),
            "entropy": ops.mean(policy.entropy()),
        }
        self.register_metrics(module_id, parts)
        return parts["policy_loss"] + parts["vf_loss"] - 0.1 * parts["entropy"]


def tiny_config(
    backend: str,
    *,
    compile: str = "none",
    modules: Sequence[ModuleID] = (),
    rl_module_spec: RLModuleSpec | None = None,
    **training: Any,
) -> TinyConfig:
    """Three observations, two actions, one hidden layer of four: 47 parameters in each module.

    Args:
        backend: short name.
        compile: mode of the update.
        modules: ids, for several modules alike.
        rl_module_spec: of the only module.
        **training: arguments of `config.training`.

    Returns:
        The config of an algorithm without a loss.
    """
    settings = {
        "lr": 0.01,
        "minibatch_size": 8,
        "num_epochs": 1,
        "shuffle_batch_per_epoch": False,
        **training,
    }
    config = TinyConfig().framework(backend, compile=compile).debugging(seed=1)
    config = config.environment(observation_space=OBSERVATIONS, action_space=TWO_ACTIONS)
    config = config.rl_module(model_config={"fcnet_hiddens": [4]}).training(**settings)
    if modules:
        one = RLModuleSpec(model_config=config.model_config)
        return config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=dict.fromkeys(modules, one)))
    return config.rl_module(rl_module_spec=rl_module_spec)


def tiny_learner(
    backend: str, cls: type[Learner] = ActorCriticLearner, plugins: Sequence[Any] = (), **settings: Any
) -> Learner:
    """A learner that is built.

    Args:
        backend: short name.
        cls: the learner's class.
        plugins: of the learner.
        **settings: as in `tiny_config`.

    Returns:
        The learner.
    """
    learner = cls(config=tiny_config(backend, **settings), plugins=plugins)
    learner.build()
    return learner


def tiny_batch(rows: int = 16, seed: int = 0) -> dict[str, Array]:
    """A batch as an older policy would have left it; its log-probabilities are of no learner's weights.

    Args:
        rows: how many.
        seed: of the numbers.

    Returns:
        `{column: array}`, columns `[rows]`, observations `[rows, 3]`.
    """
    rng = np.random.default_rng(seed)
    actions = rng.integers(2, size=rows)
    return {
        Columns.OBS: rng.normal(size=(rows, 3)).astype(np.float32),
        Columns.ACTIONS: actions,
        Columns.ACTION_LOGP: np.log(rng.uniform(0.3, 0.7, rows)).astype(np.float32),
        Columns.ADVANTAGES: rng.normal(size=rows).astype(np.float32),
        Columns.VALUE_TARGETS: rng.normal(size=rows).astype(np.float32),
    }


def digest(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Equal for two states only if every array is byte-equal and every plain value equal."""
    return {
        path: (value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
        for path, value in flatten(tree).items()
    }


def weights_of(learner: Learner, module_id: ModuleID = DEFAULT_MODULE_ID) -> Array:
    """All weights of one module in one vector.

    Args:
        learner: whose.
        module_id: of the module.

    Returns:
        float32 `[size]`.
    """
    return np.concatenate([np.ravel(each) for each in learner.get_weights()[module_id].values()])
