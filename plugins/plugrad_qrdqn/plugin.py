"""QR-DQN's answers to the algorithm hooks: DQN's, with a config, a network and a loss of its own."""

from collections.abc import Mapping
from typing import Any

from plugrad import LearnerProtocol, RLModuleSpec, hookimpl
from plugrad.schedules import ConfigView
from plugrad.training import OffPolicyTraining
from plugrad.types import ModuleID, Tensor
from plugrad_dqn import plugin as dqn
from plugrad_qrdqn.config import QRDQNConfig
from plugrad_qrdqn.loss import qrdqn_loss, quantiles_and_targets
from plugrad_qrdqn.network import QuantileNetwork

after_gradient_based_update = dqn.after_gradient_based_update
get_exploration_inputs = dqn.get_exploration_inputs
get_exploration_tensors = dqn.get_exploration_tensors
get_target_parameters = dqn.get_target_parameters


class QRDQNTraining(OffPolicyTraining):
    """`OffPolicyTraining` with the TD errors of QR-DQN, from rows or sequences."""

    trains_sequences = True

    @staticmethod
    def td_errors(learner: LearnerProtocol, *args: Any) -> Tensor:
        """The errors of the mean over quantiles.

        Args:
            learner: the learner.
            *args: the other arguments of `compute_loss_for_module`.

        Returns:
            float32 [B].
        """
        quantiles, targets = quantiles_and_targets(learner, *args)
        return learner.ops.mean(quantiles, axis=-1) - learner.ops.mean(targets, axis=-1)


@hookimpl
def get_config_class() -> type[QRDQNConfig]:
    """`QRDQNConfig`."""
    return QRDQNConfig


@hookimpl
def get_training_class() -> type[QRDQNTraining]:
    """Training from a replay buffer."""
    return QRDQNTraining


@hookimpl
def build_network(config: QRDQNConfig, module_spec: RLModuleSpec) -> QuantileNetwork:
    """A network of quantiles. See `AlgorithmSpec.build_network`."""
    return QuantileNetwork(module_spec, dueling=config.dueling, num_quantiles=config.num_quantiles)


@hookimpl
def compute_loss_for_module(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The loss of QR-DQN. See `loss.qrdqn_loss`."""
    return qrdqn_loss(learner, module_id, config, batch, fwd_out)
