"""TQC's answers to the algorithm hooks: SAC's, with a config, a network and a loss of its own."""

from collections.abc import Mapping
from typing import Any

from plugrad import LearnerProtocol, RLModuleSpec, hookimpl
from plugrad.errors import ConfigError
from plugrad.schedules import ConfigView
from plugrad.training import OffPolicyTraining
from plugrad.types import ModuleID, Tensor
from plugrad_sac import QF_PREDS, sac
from plugrad_tqc.config import TQCConfig
from plugrad_tqc.loss import tqc_loss, truncated_targets
from plugrad_tqc.network import QuantileCriticsNetwork

configure_optimizers_for_module = sac.configure_optimizers_for_module
get_noise_columns = sac.get_noise_columns
get_target_parameters = sac.get_target_parameters


class TQCTraining(OffPolicyTraining):
    """`OffPolicyTraining` with the TD errors of TQC, from rows or sequences."""

    trains_sequences = True

    @staticmethod
    def td_errors(learner: LearnerProtocol, module_id: ModuleID, *args: Any) -> Tensor:
        """The errors of the mean over quantiles.

        Args:
            learner: the learner.
            module_id: whose errors.
            *args: the other arguments of `compute_loss_for_module`.

        Returns:
            float32 [B].
        """
        _, _, fwd_out = args
        targets = truncated_targets(learner, module_id, *args)
        return fwd_out[QF_PREDS][0] - learner.ops.mean(targets, axis=-1)


@hookimpl
def get_config_class() -> type[TQCConfig]:
    """`TQCConfig`."""
    return TQCConfig


@hookimpl
def get_training_class() -> type[TQCTraining]:
    """Training from a replay buffer."""
    return TQCTraining


@hookimpl
def build_network(config: TQCConfig, module_spec: RLModuleSpec) -> QuantileCriticsNetwork:
    """A policy, twin critics of quantiles and a temperature. See `AlgorithmSpec.build_network`.

    Raises:
        ConfigError: each critic would lose all its quantiles.
    """
    if config.top_quantiles_to_drop_per_critic >= config.num_quantiles:
        raise ConfigError(
            f"top_quantiles_to_drop_per_critic={config.top_quantiles_to_drop_per_critic} leaves none of "
            f"num_quantiles={config.num_quantiles}: drop fewer",
            field="top_quantiles_to_drop_per_critic",
        )
    return QuantileCriticsNetwork(
        module_spec, initial_alpha=config.initial_alpha, num_quantiles=config.num_quantiles
    )


@hookimpl
def compute_loss_for_module(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The loss of TQC. See `loss.tqc_loss`."""
    return tqc_loss(learner, module_id, config, batch, fwd_out)
