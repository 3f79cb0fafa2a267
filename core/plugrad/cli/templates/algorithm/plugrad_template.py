"""Template: an algorithm for plugrad. It begins as advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783).

A config and a loss are an algorithm. The loss is written over `learner.ops` and so runs on every backend. Beyond these
two, write the hooks that you need; the others have answers of plugrad's own (docs/hooks.md of plugrad).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plugrad import AlgorithmConfig, Columns, LearnerProtocol, hookimpl
from plugrad.config import field
from plugrad.learner import PiecePerModule
from plugrad.losses import mean_over_rows
from plugrad.schedules import ConfigView
from plugrad.types import Tensor
from plugrad_ppo import GeneralAdvantageEstimation


@dataclass(frozen=True, kw_only=True)
class TemplateConfig(AlgorithmConfig):
    """Settings beside those of every algorithm: `.training(...)`, and options of `plugrad train template`."""

    vf_loss_coeff: float = field(0.5, minimum=0, help="weight of the value error")


@hookimpl
def get_config_class() -> type[TemplateConfig]:
    """What `plugrad.get_algorithm("template")` gives."""
    return TemplateConfig


@hookimpl
def get_learner_connectors(config: TemplateConfig) -> list[Any]:
    """From episodes to columns, in numpy, once per update: advantages and value targets, by whole returns."""
    return [PiecePerModule(lambda config: GeneralAdvantageEstimation(config.gamma, lambda_=1.0))]


@hookimpl
def compute_loss_for_module(
    learner: LearnerProtocol,
    module_id: str,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The loss, a scalar tensor: `-mean(A log pi(a|s)) + vf_loss_coeff * mean((V(s) - R)^2)`.

    See `AlgorithmSpec.compute_loss_for_module` for the arguments. In a compiled update this function runs once, while
    it is traced: no `if` on a tensor, no numpy, and settings that change with time come as tensors in `config`.
    """
    ops = learner.ops
    distribution = learner.module[module_id].get_train_action_dist_cls()
    policy = distribution.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
    score = policy.logp(batch[Columns.ACTIONS]) * batch[Columns.ADVANTAGES]
    error = ops.square(fwd_out[Columns.VF_PREDS] - batch[Columns.VALUE_TARGETS])
    parts = {"policy_loss": -mean_over_rows(ops, score, batch), "vf_loss": mean_over_rows(ops, error, batch)}
    learner.register_metrics(module_id, parts)
    return parts["policy_loss"] + config.vf_loss_coeff * parts["vf_loss"]
