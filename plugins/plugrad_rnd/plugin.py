"""RND's answers to the algorithm hooks: PPO's, with a bonus in the advantages and a predictor that is trained."""

from collections.abc import Mapping
from typing import Any

from plugrad import LearnerProtocol, RLModuleSpec, hookimpl
from plugrad.config import Config
from plugrad.errors import ConfigError
from plugrad.learner import PiecePerModule
from plugrad.losses import mean_over_rows
from plugrad.optimizers import make_optimizer
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor
from plugrad_ppo import GeneralAdvantageEstimation
from plugrad_ppo import plugin as ppo
from plugrad_rnd.bonus import BONUS_TARGETS, NEXT_OBS, RETURNS, Bonus
from plugrad_rnd.config import RNDConfig
from plugrad_rnd.moments import Moments
from plugrad_rnd.network import BONUS_VALUES, ERROR, PREDICTOR, TARGET, RNDNetwork

after_gradient_based_update = ppo.after_gradient_based_update


@hookimpl
def get_config_class() -> type[RNDConfig]:
    """`RNDConfig`."""
    return RNDConfig


@hookimpl
def build_network(config: RNDConfig, module_spec: RLModuleSpec) -> RNDNetwork:
    """PPO's networks, a random one, its predictor, and values of bonuses. See `AlgorithmSpec.build_network`."""
    return RNDNetwork(module_spec, hiddens=config.rnd_hiddens, features=config.rnd_features)


@hookimpl
def get_learner_connectors(config: RNDConfig) -> list[Any]:
    """PPO's advantages and value targets, then those of the bonus."""
    return [PiecePerModule(_advantages), PiecePerModule(Bonus)]


def _advantages(config: RNDConfig) -> GeneralAdvantageEstimation:
    return GeneralAdvantageEstimation(config.gamma, config.lambda_, is_standardized=False)


@hookimpl
def configure_optimizers_for_module(learner: LearnerProtocol, module_id: ModuleID, config: Config) -> None:
    """An optimizer for PPO's networks and one for the predictor; the target is frozen, and moments are registered."""
    params = {
        learner.get_param_ref(each).removeprefix(f"{module_id}/"): each
        for each in learner.get_parameters(learner.module[module_id])
    }
    predictor = [each for name, each in params.items() if name.startswith(f"{PREDICTOR}.")]
    if not predictor:
        raise ConfigError(
            f"module {module_id!r} ({learner.module[module_id].class_name}) has no {PREDICTOR}: RND has networks of "
            "its own beside PPO's, so it takes no module_class",
            module_id=module_id,
        )
    rest = [each for name, each in params.items() if not name.startswith((f"{PREDICTOR}.", f"{TARGET}."))]
    for own, name, lr in ((rest, "default_optimizer", config.lr), (predictor, "rnd", vars(config)["rnd_lr"])):
        learner.register_optimizer(
            module_id=module_id,
            optimizer_name=name,
            optimizer=make_optimizer(config.optimizer),
            params=own,
            lr_or_lr_schedule=lr,
        )
    learner.freeze_parameters(module_id, [TARGET])
    network: Any = learner.module[module_id].network
    inputs = next(each.shape[0] for each in network.parameters if each.name == f"{TARGET}.0.weight")
    _moments(learner, module_id, inputs)


def _moments(learner: LearnerProtocol, module_id: ModuleID, inputs: int) -> tuple[Moments, Moments]:
    return Moments.of(learner, module_id, "obs", inputs), Moments.of(learner, module_id, "returns", 1)


@hookimpl
def compute_loss_for_module(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """PPO's loss, the bonus's value error and the predictor's error; moves the moments.

    A batch without the bonus's columns has PPO's alone. The value error is weighed by `vf_loss_coeff`, and not capped.
    """
    loss: Tensor = ppo.compute_loss_for_module(learner, module_id, config, batch, fwd_out)
    if ERROR not in fwd_out:
        return loss
    ops = learner.ops
    of_obs, of_returns = _moments(learner, module_id, ops.shape(batch[NEXT_OBS])[-1])
    of_obs.move(ops, batch[NEXT_OBS])
    of_returns.move(ops, batch[RETURNS])
    error = mean_over_rows(ops, fwd_out[ERROR], batch)
    value_error = mean_over_rows(ops, ops.square(fwd_out[BONUS_VALUES] - batch[BONUS_TARGETS]), batch)
    learner.register_metric(module_id, "rnd_loss", error)
    learner.register_metric(module_id, "rnd_vf_loss", value_error)
    return loss + error + config.vf_loss_coeff * value_error
