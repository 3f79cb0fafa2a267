"""DQN's answers to the algorithm hooks."""

from collections.abc import Collection, Generator, Mapping

from plugrad import LearnerProtocol
from plugrad.columns import Columns
from plugrad.hooks.markers import hookimpl
from plugrad.module_spec import RLModuleSpec
from plugrad.schedules import ConfigView
from plugrad.types import TOTAL_LOSS_KEY, Array, ModuleID, Tensor
from plugrad_dqn.config import DQNConfig
from plugrad_dqn.exploration import epsilon_greedy_logits, epsilon_greedy_tensors
from plugrad_dqn.loss import TD_ERROR, dqn_loss
from plugrad_dqn.network import QF_PREDS, DQNetwork
from plugrad_dqn.training import DQNTraining

RLLIBS_NAMES = {TOTAL_LOSS_KEY: "qf_loss", TD_ERROR: "td_error_mean"}


@hookimpl
def get_config_class() -> type[DQNConfig]:
    """`DQNConfig`."""
    return DQNConfig


@hookimpl
def get_training_class() -> type[DQNTraining]:
    """Training from a replay buffer."""
    return DQNTraining


@hookimpl
def build_network(config: DQNConfig, module_spec: RLModuleSpec) -> DQNetwork:
    """A Q-network with one linear head, or with two if `dueling`. See `AlgorithmSpec.build_network`."""
    return DQNetwork(module_spec, dueling=config.dueling)


@hookimpl
def get_target_parameters(learner: LearnerProtocol, module_id: ModuleID) -> Collection[str]:
    """All parameters of the module. See `AlgorithmSpec.get_target_parameters`."""
    names: Collection[str] = learner.module[module_id].get_state().keys()
    return names


@hookimpl
def get_exploration_inputs(
    learner: LearnerProtocol, module_id: ModuleID, fwd_out: Mapping[str, Array]
) -> Array:
    """Epsilon-greedy, with the schedule's epsilon of the last update. See `AlgorithmSpec.get_exploration_inputs`."""
    epsilon = float(learner.coefficients[module_id]["epsilon"].numpy())
    return epsilon_greedy_logits(fwd_out[QF_PREDS], epsilon, fwd_out.get(Columns.ACTION_MASK))


@hookimpl
def get_exploration_tensors(
    learner: LearnerProtocol, module_id: ModuleID, fwd_out: Mapping[str, Tensor]
) -> Tensor:
    """`get_exploration_inputs` of tensors. See `AlgorithmSpec.get_exploration_tensors`."""
    epsilon = learner.coefficients[module_id]["epsilon"].read()
    return epsilon_greedy_tensors(learner.ops, fwd_out[QF_PREDS], epsilon, fwd_out.get(Columns.ACTION_MASK))


@hookimpl
def compute_loss_for_module(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The loss of DQN. See `loss.dqn_loss`."""
    return dqn_loss(learner, module_id, config, batch, fwd_out)


@hookimpl(wrapper=True)
def after_gradient_based_update(
    learner: LearnerProtocol, timesteps: Mapping[str, int]
) -> Generator[None, None, None]:
    """Report epsilon, and loss and TD error under RLlib's names too.

    See `AlgorithmSpec.after_gradient_based_update`.
    """
    yield
    for module_id in learner.targets:
        epsilon = float(learner.coefficients[module_id]["epsilon"].numpy())
        learner.register_metric(module_id, "epsilon", epsilon)
        results = learner.metrics.results.get(module_id, {})
        for name, rllibs in RLLIBS_NAMES.items():
            if name in results:
                learner.register_metric(module_id, rllibs, results[name])
