"""REINFORCE with a learned baseline (Williams 1992, section 5) as a plugin of plugrad."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from plugrad import AlgorithmConfig, Columns, LearnerProtocol, SingleAgentEpisode, hookimpl
from plugrad.config import field
from plugrad.episodes import episodes_by_module
from plugrad.losses import mean_over_rows
from plugrad.schedules import ConfigView
from plugrad.types import Array, Tensor


@dataclass(frozen=True, kw_only=True)
class ReinforceConfig(AlgorithmConfig):
    """Its new fields are arguments of `.training(...)` and options of `plugrad train reinforce`."""

    default_model_config: ClassVar[Mapping[str, Any]] = {"fcnet_hiddens": [32, 32]}

    vf_loss_coeff: float = field(0.5, help="weight of the value error")
    entropy_coeff: float | list[list[float]] = field(0.01, help="weight of the entropy", schedulable=True)


@hookimpl
def get_config_class() -> type[ReinforceConfig]:
    return ReinforceConfig


@hookimpl
def get_learner_connectors(config: ReinforceConfig) -> list[Any]:
    def add_returns(*, learner: LearnerProtocol, batch: Any, episodes: list[SingleAgentEpisode]) -> Any:
        own = episodes_by_module(episodes)
        for module_id, columns in batch.items():
            gamma = learner.config.get_config_for_module(module_id).gamma
            returns = [returns_of(each, learner, module_id, gamma) for each in own[module_id]]
            columns[Columns.RETURNS_TO_GO] = np.concatenate(returns)
        return batch

    return [add_returns]


def returns_of(episode: SingleAgentEpisode, learner: LearnerProtocol, module_id: str, gamma: float) -> Array:
    """R_t = r_t + gamma R_(t+1); behind the last step 0, or the value of where an unfinished episode stands."""
    value, returns = 0.0, np.empty(len(episode), np.float32)
    if not episode.terminated:
        value = float(learner.compute_values_of_episodes([episode], module_id=module_id)[-1])
    for t in reversed(range(len(episode))):
        returns[t] = value = episode.rewards[t] + gamma * value
    return returns


@hookimpl
def compute_loss_for_module(
    learner: LearnerProtocol,
    module_id: str,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    ops = learner.ops
    distribution = learner.module[module_id].get_train_action_dist_cls()
    policy = distribution.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
    advantages = batch[Columns.RETURNS_TO_GO] - fwd_out[Columns.VF_PREDS]
    score = policy.logp(batch[Columns.ACTIONS]) * ops.stop_gradient(advantages)
    parts = {
        "policy_loss": -mean_over_rows(ops, score, batch),
        "vf_loss": mean_over_rows(ops, ops.square(advantages), batch),
        "entropy": mean_over_rows(ops, policy.entropy(), batch),
    }
    learner.register_metrics(module_id, parts)
    bonus = config.entropy_coeff * parts["entropy"]
    return parts["policy_loss"] + config.vf_loss_coeff * parts["vf_loss"] - bonus
