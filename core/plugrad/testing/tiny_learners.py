"""Tiny learners and batches, which the suites train: a few dozen parameters, so that finite differences are quick.

Recorders see what a learner trains on, what of it is read, and by which gradients; nothing of it is changed.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.columns import Columns
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookimpl
from plugrad.learner import Learner
from plugrad.learner.update.data_parallel import only_modules
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


class BatchRecordedError(Exception):
    """An update was about to train on `batch`, `{module_id: {column: array}}`."""

    def __init__(self, batch: dict[ModuleID, dict[str, Array]]) -> None:
        super().__init__("this learner trains on nothing, it only shows what it was given")
        self.batch = batch


def batch_recorder(cls: type[Any]) -> type[Any]:
    """A learner class like this one whose first update raises `BatchRecordedError`, before there is a loss."""

    class Recorder(cls):  # type: ignore[misc]
        """Looks at what goes to the device."""

        def _convert_batch_type(self, batch: Mapping[str, Any]) -> dict[str, Any]:
            columns = {m: dict(each) for m, each in batch.items() if isinstance(each, Mapping)}
            if any(Columns.OBS in each for each in columns.values()):
                raise BatchRecordedError(only_modules(columns))
            converted: dict[str, Any] = super()._convert_batch_type(batch)
            return converted

    return Recorder


class GradientRecorder:
    """Keeps the gradients of each step, `{param ref: array}`: of steps that are not traced."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Array]] = []

    @property
    def gradients(self) -> dict[str, Array]:
        """Those of the last step."""
        return self.steps[-1]

    @hookimpl(wrapper=True)
    def postprocess_gradients(
        self, learner: LearnerProtocol, gradients_dict: Mapping[str, Any]
    ) -> Generator[None, Any, Any]:
        """See `LearnerSpec.postprocess_gradients`: before they are clipped."""
        self.steps.append(learner._convert_to_numpy(dict(gradients_dict)))
        return (yield)


class ReadColumns(dict[str, Any]):
    """Columns that remember which of them were read."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        super().__init__(columns)
        self.read: set[str] = set()

    def __getitem__(self, column: str) -> Any:
        self.read.add(column)
        return super().__getitem__(column)

    def get(self, column: str, default: Any = None) -> Any:
        """As of a dict.

        Args:
            column: which counts as read.
            default: where there is none.

        Returns:
            The column or the default.
        """
        self.read.add(column)
        return super().get(column, default)
