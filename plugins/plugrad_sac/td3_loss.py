"""The loss of TD3, over ops.

Reference: Fujimoto et al. 2018, "Addressing Function Approximation Error in Actor-Critic Methods", arXiv:1802.09477.
"""

from collections.abc import Mapping
from typing import Any

from plugrad import Columns, LearnerProtocol
from plugrad.batch import next_columns, of_next, with_state
from plugrad.distributions import squashed_gaussian_class
from plugrad.losses import mean_over_rows
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor
from plugrad_sac.critic_loss import twin_critic_loss, twin_td_errors
from plugrad_sac.networks import POLICY_ACTIONS, QF_PREDS

TARGET_NOISE = "target_noise"
"""Standard normals [B, ...] that smooth the target policy."""


def td3_loss(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The losses of critics and policy of algorithm 1, added up.

    Each has a gradient for its own parameters alone. The policy's optimizer delays its updates.

    Args:
        learner: gives ops, the module and its target network, and takes metrics.
        module_id: whose loss.
        config: what `td3_td_errors` reads.
        batch: obs, and what `td3_td_errors` reads; `weights` [B] if some rows count more.
        fwd_out: action_dist_inputs [B, 2 d], qf_preds [2, B].

    Returns:
        The scalar loss.

    Raises:
        BatchError: a column does not have one number per row, and would broadcast.
    """
    ops, module = learner.ops, learner.module[module_id]
    errors = td3_td_errors(learner, module_id, config, batch, fwd_out)
    critic_loss = twin_critic_loss(learner, module_id, batch, fwd_out[QF_PREDS], errors)
    actions = _deterministic_actions(learner, module_id, fwd_out)
    chosen = {Columns.OBS: batch[Columns.OBS], POLICY_ACTIONS: actions}
    first_critic = module.forward_train(with_state(batch, chosen))[QF_PREDS][0]
    policy_loss = -mean_over_rows(ops, first_critic, batch)
    learner.register_metric(module_id, "policy_loss", policy_loss)
    return critic_loss + policy_loss


def td3_td_errors(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """`Q_i(s, a) - (r + gamma^n min_i Q'_i(s', a'))` with `a' = clip(pi'(s') + clip(noise))`.

    Clipped double Q-learning (section 4.2) and target policy smoothing (section 5.3). `Q'_i` and `pi'` are the target
    networks. Standard deviation and clip of the noise are for actions rescaled to [-1, 1].

    Args:
        learner: gives ops, the module and its target network.
        module_id: whose errors.
        config: gamma, target_policy_noise, target_noise_clip.
        batch: new_obs (n steps on), target_noise [B, ...], rewards [B] (the sum of n), terminateds [B]; `n_step` [B] if
            not 1.
        fwd_out: qf_preds [2, B].

    Returns:
        The errors of both critics [2, B].

    Raises:
        BatchError: a column does not have one number per row, and would broadcast.
    """
    ops, target = learner.ops, learner.targets[module_id]
    space: Any = learner.module[module_id].action_space
    bounds = squashed_gaussian_class(space, ops)
    later = _deterministic_actions(learner, module_id, target.forward(next_columns(ops, batch)))
    deterministic = of_next(batch, later, inner=len(space.shape))
    limit = config.target_noise_clip
    noise = ops.clip(config.target_policy_noise * batch[TARGET_NOISE], -limit, limit)
    smoothed = ops.clip(bounds.scale_actions(deterministic) + noise, -1.0, 1.0)
    chosen = next_columns(ops, batch, **{POLICY_ACTIONS: bounds.unscale_actions(smoothed)})
    values = ops.min(of_next(batch, target.forward(chosen)[QF_PREDS]), axis=0)
    return twin_td_errors(ops, module_id, config, batch, fwd_out[QF_PREDS], values)


def _deterministic_actions(
    learner: LearnerProtocol, module_id: ModuleID, columns: Mapping[str, Tensor]
) -> Tensor:
    distribution = learner.module[module_id].get_train_action_dist_cls()
    return distribution.from_logits(columns[Columns.ACTION_DIST_INPUTS]).mode()
