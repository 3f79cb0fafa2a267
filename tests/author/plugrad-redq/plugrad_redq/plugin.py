"""REDQ's answers to the algorithm hooks, and its loss."""

from collections.abc import Collection, Mapping
from math import prod
from typing import Any

from plugrad import Columns, LearnerProtocol, RLModuleSpec, hookimpl
from plugrad.distributions import Distribution
from plugrad.losses import (
    check_one_per_row,
    critic_loss,
    mean_over_rows,
    sac_temperature_loss,
    td_targets,
)
from plugrad.optimizers import make_optimizer
from plugrad.schedules import ConfigView
from plugrad.training import OffPolicyTraining
from plugrad.types import Tensor
from plugrad_redq.config import REDQConfig
from plugrad_redq.network import CRITICS, LOG_ALPHA, POLICY, POLICY_ACTIONS, QF_PREDS, PolicyAndEnsemble

NOISE, NEXT_NOISE, SUBSET = "policy_noise", "next_policy_noise", "subset_noise"
"""Standard normals: of the actions in `obs` and in `new_obs`, and [B, N], by which critics are drawn."""


class REDQTraining(OffPolicyTraining):
    """From a replay buffer."""

    @staticmethod
    def td_errors(
        learner: LearnerProtocol,
        module_id: str,
        config: ConfigView,
        batch: Mapping[str, Tensor],
        fwd_out: Mapping[str, Tensor],
    ) -> Tensor:
        """The mean absolute error of all critics [B]."""
        errors = fwd_out[QF_PREDS] - redq_targets(learner, module_id, config, batch, fwd_out)
        return learner.ops.mean(learner.ops.abs(errors), axis=0)


@hookimpl
def get_config_class() -> type[REDQConfig]:
    return REDQConfig


@hookimpl
def get_training_class() -> type[REDQTraining]:
    return REDQTraining


@hookimpl
def build_network(config: REDQConfig, module_spec: RLModuleSpec) -> PolicyAndEnsemble:
    return PolicyAndEnsemble(module_spec, config.num_critics)


@hookimpl
def configure_optimizers_for_module(learner: LearnerProtocol, module_id: str, config: REDQConfig) -> None:
    """One each for critics, policy and temperature; the last two step once in `policy_delay` steps."""
    params = learner.get_parameters(learner.module[module_id])
    for name, every in ((CRITICS, 1), (POLICY, config.policy_delay), (LOG_ALPHA, config.policy_delay)):
        learner.register_optimizer(
            module_id=module_id,
            optimizer_name=name,
            optimizer=make_optimizer(config.optimizer),
            params=[each for each in params if learner.get_param_ref(each).startswith(f"{module_id}/{name}")],
            lr_or_lr_schedule=config.lr,
            every=every,
        )


@hookimpl
def get_target_parameters(learner: LearnerProtocol, module_id: str) -> Collection[str]:
    return [name for name in learner.module[module_id].get_state() if name.startswith(CRITICS)]


@hookimpl
def get_noise_columns(
    learner: LearnerProtocol, module_id: str, config: REDQConfig
) -> Mapping[str, tuple[int, ...]]:
    space: Any = learner.module[module_id].action_space
    return {NOISE: space.shape, NEXT_NOISE: space.shape, SUBSET: (config.num_critics,)}


@hookimpl
def compute_loss_for_module(
    learner: LearnerProtocol,
    module_id: str,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The losses of critics, policy and temperature of algorithm 1; each has a gradient for its own part alone."""
    ops = learner.ops
    errors = fwd_out[QF_PREDS] - redq_targets(learner, module_id, config, batch, fwd_out)
    losses = critic_loss(ops, errors)
    if Columns.WEIGHTS in batch:
        check_one_per_row(ops, module_id, batch, Columns.WEIGHTS, like=losses)
        losses = losses * ops.cast(batch[Columns.WEIGHTS], "float32")
    policy = _policy(learner, module_id, fwd_out[Columns.ACTION_DIST_INPUTS])
    actions, logp = policy.rsample_with_logp(batch[NOISE])
    chosen = {Columns.OBS: batch[Columns.OBS], POLICY_ACTIONS: actions}
    q_values = ops.mean(learner.module[module_id].forward_train(chosen)[QF_PREDS], axis=0)
    alpha = ops.exp(fwd_out[LOG_ALPHA])
    entropy = mean_over_rows(ops, ops.stop_gradient(-logp), batch)
    parts = {
        "qf_loss": mean_over_rows(ops, losses, batch),
        "policy_loss": mean_over_rows(ops, ops.stop_gradient(alpha) * logp - q_values, batch),
        "alpha_loss": sac_temperature_loss(
            ops, fwd_out[LOG_ALPHA], entropy, -float(prod(policy.action_shape))
        ),
    }
    learner.register_metrics(module_id, {**parts, "alpha_value": alpha, "entropy": entropy})
    return parts["qf_loss"] + parts["policy_loss"] + parts["alpha_loss"]


def redq_targets(
    learner: LearnerProtocol,
    module_id: str,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """`r + gamma (min_(i in M) q'_i(s', a') - alpha log pi(a'|s'))` [B], a constant (equation 1).

    The set M is drawn for each row: those critics whose numbers in SUBSET are the smallest. One set for a minibatch, as
    in the paper, would differ between learners that share it.
    """
    ops, module = learner.ops, learner.module[module_id]
    new_obs, drawn = batch[Columns.NEXT_OBS], batch[SUBSET]
    policy = _policy(
        learner, module_id, module.forward_train({Columns.OBS: new_obs})[Columns.ACTION_DIST_INPUTS]
    )
    actions, logp = policy.rsample_with_logp(batch[NEXT_NOISE])
    columns = (Columns.REWARDS, Columns.TERMINATEDS, *([Columns.N_STEP] if Columns.N_STEP in batch else []))
    check_one_per_row(ops, module_id, batch, *columns, like=logp)
    later = learner.targets[module_id].forward({Columns.OBS: new_obs, POLICY_ACTIONS: actions})[QF_PREDS]
    largest = ops.sort(drawn)[:, config.num_critics_of_targets - 1 : config.num_critics_of_targets]
    is_asked = ops.permute_dims(drawn <= largest, (1, 0))
    value = ops.min(ops.where(is_asked, later, ops.max(later)), axis=0) - ops.exp(fwd_out[LOG_ALPHA]) * logp
    rewards, terminateds, *steps = (batch[each] for each in columns)
    return ops.stop_gradient(td_targets(ops, rewards, terminateds, value, config.gamma, *steps))


def _policy(learner: LearnerProtocol, module_id: str, inputs: Tensor) -> Distribution:
    return learner.module[module_id].get_train_action_dist_cls().from_logits(inputs)
