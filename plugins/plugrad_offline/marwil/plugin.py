"""MARWIL's answers to the algorithm hooks."""

from collections.abc import Generator, Mapping
from dataclasses import replace
from math import isfinite, nan
from typing import Any

from plugrad import LearnerProtocol, RLModuleSpec, hookimpl
from plugrad.learner import PiecePerModule
from plugrad.networks import ActorCritic, Network
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor
from plugrad_offline.marwil.config import MARWILConfig
from plugrad_offline.marwil.connectors import ReturnsToGo
from plugrad_offline.marwil.loss import NORM, SQUARED_ADVANTAGE, marwil_loss
from plugrad_offline.training import get_training_class

__all__ = ["get_training_class"]
"""Includes answers that offline algorithms share."""


@hookimpl
def get_config_class() -> type[MARWILConfig]:
    """`MARWILConfig`."""
    return MARWILConfig


@hookimpl
def build_network(config: MARWILConfig, module_spec: RLModuleSpec) -> Network:
    """The built-in network, without a value network for plain cloning. See `AlgorithmSpec.build_network`."""
    return ActorCritic(module_spec if config.beta else replace(module_spec, inference_only=True))


@hookimpl
def get_learner_connectors(config: MARWILConfig) -> list[Any]:
    """Returns to go, for modules whose `beta` is not 0."""
    return [PiecePerModule(lambda config: ReturnsToGo(config.gamma) if config.beta else None)]


@hookimpl
def compute_loss_for_module(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The loss of MARWIL, or of behaviour cloning. See `loss.marwil_loss`."""
    return marwil_loss(learner, module_id, config, batch, fwd_out)


@hookimpl(wrapper=True)
def after_gradient_based_update(
    learner: LearnerProtocol, timesteps: Mapping[str, int]
) -> Generator[None, None, None]:
    """Move the average of the squared advantages, `c ** 2` in the paper, after each update.

    All losses of an update use the average from before it, so that several learners, or the parts of an accumulated
    batch, compute the same as one learner. A learner whose own loss reports no advantages keeps its average. See
    `AlgorithmSpec.after_gradient_based_update`.
    """
    yield
    for module_id, results in learner.metrics.results.items():
        # Not a number if every minibatch was skipped.
        if not isfinite(float(results.get(SQUARED_ADVANTAGE, nan))):
            continue
        average = learner.coefficients[module_id][NORM]
        rate = learner.config.get_config_for_module(module_id).moving_average_sqd_adv_norm_update_rate
        value = float(average.numpy())
        average.assign(value + rate * (results[SQUARED_ADVANTAGE] - value))
        learner.register_metric(module_id, "moving_avg_sqd_adv_norm", float(average.numpy()))
