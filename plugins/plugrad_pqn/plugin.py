"""PQN's answers to the algorithm hooks: DQN's network and exploration, targets and a loss of its own."""

from collections.abc import Generator, Mapping
from typing import Any, ClassVar

from plugrad import LearnerProtocol, RLModuleSpec, hookimpl
from plugrad.learner import PiecePerModule
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor
from plugrad_dqn import QNetwork
from plugrad_dqn import plugin as dqn
from plugrad_pqn.config import PQNConfig
from plugrad_pqn.loss import pqn_loss
from plugrad_pqn.targets import QLambdaTargets

get_exploration_inputs = dqn.get_exploration_inputs
get_exploration_tensors = dqn.get_exploration_tensors


class PQNetwork(QNetwork):
    """`QNetwork` that says whose it is."""

    algorithm: ClassVar[str] = "PQN"


@hookimpl
def get_config_class() -> type[PQNConfig]:
    """`PQNConfig`."""
    return PQNConfig


@hookimpl
def build_network(config: PQNConfig, module_spec: RLModuleSpec) -> PQNetwork:
    """A Q-network with one linear head. See `AlgorithmSpec.build_network`."""
    return PQNetwork(module_spec, dueling=False)


@hookimpl
def get_learner_connectors(config: PQNConfig) -> list[Any]:
    """Q(lambda) targets."""
    return [PiecePerModule(QLambdaTargets)]


@hookimpl
def compute_loss_for_module(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The loss of PQN. See `loss.pqn_loss`."""
    return pqn_loss(learner, module_id, batch, fwd_out)


@hookimpl(wrapper=True)
def after_gradient_based_update(
    learner: LearnerProtocol, timesteps: Mapping[str, int]
) -> Generator[None, None, None]:
    """Report epsilon. See `AlgorithmSpec.after_gradient_based_update`."""
    yield
    for module_id in learner.metrics.results:
        if module_id in learner.module:
            epsilon = float(learner.coefficients[module_id]["epsilon"].numpy())
            learner.register_metric(module_id, "epsilon", epsilon)
