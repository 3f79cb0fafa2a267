"""IMPALA's answers to the algorithm hooks."""

from collections.abc import Generator, Mapping
from typing import Any

from plugrad import LearnerProtocol, hookimpl
from plugrad.sampling import steps_per_env
from plugrad.schedules import ConfigView
from plugrad.training import AsynchronousTraining
from plugrad.types import ModuleID, Tensor
from plugrad_impala.connectors import VTraceSequences
from plugrad_impala.impala_config import IMPALAConfig
from plugrad_impala.impala_loss import impala_loss
from plugrad_ppo import report_entropy_coefficients


@hookimpl
def get_config_class() -> type[IMPALAConfig]:
    """`IMPALAConfig`."""
    return IMPALAConfig


@hookimpl
def get_training_class() -> type[AsynchronousTraining]:
    """Updates beside env runners that go on sampling."""
    return AsynchronousTraining


@hookimpl
def get_learner_connectors(config: IMPALAConfig) -> list[Any]:
    """Sequences of as many steps as one sample has per environment."""
    return [VTraceSequences(steps_per_env(config))]


@hookimpl
def compute_loss_for_module(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The loss of IMPALA. See `impala_loss.impala_loss`."""
    return impala_loss(learner, module_id, config, batch, fwd_out)


@hookimpl(wrapper=True)
def after_gradient_based_update(
    learner: LearnerProtocol, timesteps: Mapping[str, int]
) -> Generator[None, None, None]:
    """Report the coefficient of the entropy. See `AlgorithmSpec.after_gradient_based_update`."""
    yield
    report_entropy_coefficients(learner)
