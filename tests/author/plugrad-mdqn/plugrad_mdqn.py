"""Munchausen-DQN (Vieillard et al. 2020, "Munchausen Reinforcement Learning", arXiv:2007.14430) as a plugin."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from plugrad import Columns, LearnerProtocol, OffPolicyConfig, RLModuleSpec, hookimpl
from plugrad.config import field
from plugrad.distributions import mask_logits
from plugrad.losses import check_one_per_row, td_targets
from plugrad.ops import Ops
from plugrad.schedules import ConfigView
from plugrad.training import OffPolicyTraining
from plugrad.types import Tensor
from plugrad_dqn import QF_PREDS, QNetwork, mean_q_loss
from plugrad_dqn import plugin as dqn

get_exploration_inputs = dqn.get_exploration_inputs
get_target_parameters = dqn.get_target_parameters


@dataclass(frozen=True, kw_only=True)
class MDQNConfig(OffPolicyConfig):
    default_model_config: ClassVar[Mapping[str, Any]] = {"fcnet_activation": "relu"}

    lr: float | list[list[float]] = field(1e-3, schedulable=True, help="learning rate")
    minibatch_size: int | None = field(64, help="rows per gradient step")
    epsilon: float | list[list[float]] = field(
        [[0, 1.0], [10_000, 0.05]], minimum=0, maximum=1, schedulable=True, help="share of random actions"
    )
    munchausen_alpha: float = field(0.9, minimum=0, maximum=1, help="weight of the log-policy in the reward")
    entropy_tau: float = field(0.03, above=0, help="temperature of the policy softmax(q / tau)")
    least_log_policy: float = field(-1.0, maximum=0, help="the scaled log-policy is clipped to this")


class MunchausenNetwork(QNetwork):
    algorithm: ClassVar[str] = "M-DQN"


class MDQNTraining(OffPolicyTraining):
    @staticmethod
    def td_errors(learner: LearnerProtocol, *args: Any) -> Tensor:
        q_values, targets = q_values_and_targets(learner, *args)
        return q_values - targets


@hookimpl
def get_config_class() -> type[MDQNConfig]:
    return MDQNConfig


@hookimpl
def get_training_class() -> type[MDQNTraining]:
    return MDQNTraining


@hookimpl
def build_network(module_spec: RLModuleSpec) -> MunchausenNetwork:
    return MunchausenNetwork(module_spec, dueling=False)


def q_values_and_targets(
    learner: LearnerProtocol,
    module_id: str,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> tuple[Tensor, Tensor]:
    """q(s, a), and r + alpha [tau log pi(a|s)]_l0^0 + gamma sum_a' pi(a'|s') (q'(s', a') - tau log pi(a'|s')).

    Equation 3, with pi = softmax(q' / tau) of the target network q'. The sum is tau logsumexp(q'(s', .) / tau).
    """
    ops, tau, target = learner.ops, config.entropy_tau, learner.targets[module_id]
    actions = ops.expand_dims(ops.cast(batch[Columns.ACTIONS], "int64"), -1)
    q_values = ops.take_along_axis(fwd_out[QF_PREDS], actions)[..., 0]
    n_step = (Columns.N_STEP,) if Columns.N_STEP in batch else ()
    columns = (Columns.REWARDS, Columns.TERMINATEDS, *n_step)
    check_one_per_row(ops, module_id, batch, *columns, like=q_values)
    now = _logits(ops, target.forward({Columns.OBS: batch[Columns.OBS]}), tau, batch.get(Columns.ACTION_MASK))
    later = target.forward({Columns.OBS: batch[Columns.NEXT_OBS]})
    soft_values = tau * ops.logsumexp(_logits(ops, later, tau, batch.get(Columns.NEXT_ACTION_MASK)))
    log_policy = tau * ops.take_along_axis(ops.log_softmax(now), actions)[..., 0]
    bonus = config.munchausen_alpha * ops.clip(log_policy, config.least_log_policy, 0.0)
    rewards, terminateds, *steps = (batch[each] for each in columns)
    rewards = ops.cast(rewards, "float32") + bonus
    targets = td_targets(ops, rewards, terminateds, soft_values, config.gamma, *steps)
    return q_values, ops.stop_gradient(targets)


def _logits(ops: Ops, columns: Mapping[str, Tensor], tau: float, mask: Tensor | None) -> Tensor:
    """q / tau of the allowed actions."""
    logits = columns[QF_PREDS] / tau
    return logits if mask is None else mask_logits(ops, logits, mask)


@hookimpl
def compute_loss_for_module(
    learner: LearnerProtocol,
    module_id: str,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    q_values, targets = q_values_and_targets(learner, module_id, config, batch, fwd_out)
    errors = q_values - targets
    return mean_q_loss(learner, module_id, batch, learner.ops.huber(errors), q_values, errors)
