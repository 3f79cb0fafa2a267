"""The core's default answers to the hooks of algorithms, except the loss."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from plugrad.columns import Columns
from plugrad.config import Config
from plugrad.errors import ConfigError
from plugrad.hooks.backend_spec import BatchedProgram, Capability
from plugrad.hooks.markers import hookimpl
from plugrad.model_config import ModelSetting
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import ActorCritic, Network
from plugrad.ops import Variable
from plugrad.rl_module import RLModule
from plugrad.training import OnPolicyTraining, Training
from plugrad.types import Array, ModuleID, Tensor

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

TIMESTEP = "num_env_steps_sampled_lifetime"
"""The entry of `timesteps` that schedules follow."""


@hookimpl
def get_default_rl_module_spec(config: Config) -> RLModuleSpec:
    """The algorithm's network, with `config.model_config` over the config's `default_model_config`."""
    defaults = {
        name: value
        for name, value in config.default_model_config.items()
        if not isinstance(value, ModelSetting)
    }
    return RLModuleSpec(model_config={**defaults, **config.model_config})


@hookimpl
def build_network(module_spec: RLModuleSpec) -> Network:
    """Policy and value networks."""
    return ActorCritic(module_spec)


@hookimpl
def get_learner_connectors(config: Config) -> list[Any]:
    """No further pieces."""
    return []


@hookimpl
def get_exploration_inputs(fwd_out: Mapping[str, Array]) -> Array:
    """The policy's own inputs."""
    return fwd_out[Columns.ACTION_DIST_INPUTS]


@hookimpl
def get_exploration_tensors(fwd_out: Mapping[str, Tensor]) -> Tensor:
    """The policy's own inputs."""
    return fwd_out[Columns.ACTION_DIST_INPUTS]


@hookimpl
def get_training_class() -> type[Training]:
    """On-policy training."""
    return OnPolicyTraining


@hookimpl
def get_target_parameters(learner: "Learner", module_id: ModuleID, config: Config) -> Collection[str]:
    """No target network. See `AlgorithmSpec.get_target_parameters`."""
    return ()


@hookimpl
def get_noise_columns(
    learner: "Learner", module_id: ModuleID, config: Config
) -> Mapping[str, tuple[int, ...]]:
    """No noise. See `AlgorithmSpec.get_noise_columns`."""
    return {}


@hookimpl
def should_module_be_updated(learner: "Learner", module_id: ModuleID, multi_agent_batch: Any) -> bool:
    """As `config.policies_to_train` says; None means all. See `LearnerSpec.should_module_be_updated`."""
    trained = learner.config.policies_to_train
    return trained is None or module_id in trained


@hookimpl
def before_gradient_based_update(learner: "Learner", timesteps: Mapping[str, int]) -> None:
    """Nothing. See `AlgorithmSpec.before_gradient_based_update`."""


@hookimpl
def after_gradient_based_update(learner: "Learner", timesteps: Mapping[str, int]) -> None:
    """Move schedules to the timestep, if it is given, and update target networks that are updated after updates.

    See `AlgorithmSpec.after_gradient_based_update`.
    """
    timestep = timesteps.get(TIMESTEP)
    if timestep is not None:
        apply_schedules(learner, timestep)
    for target in learner.targets.values():
        target.follow_update(timestep)


def apply_schedules(learner: "Learner", timestep: int, module_id: ModuleID | None = None) -> None:
    """Set learning rates and scheduled coefficients to their values at a timestep.

    Args:
        learner: a learner with optimizers.
        timestep: environment steps so far.
        module_id: whose; None: all.
    """
    for each in learner.registered_optimizers.values():
        if each.schedule is not None and module_id in (None, each.module_id):
            learner._set_optimizer_lr(each.optimizer, each.schedule.at(timestep))
    for owner, coefficients in learner.coefficients.items():
        if module_id in (None, owner):
            coefficients.move_to(timestep)


@hookimpl
def jvp(learner: "Learner") -> tuple[Tensor, Tensor]:
    """Nothing that every backend can do. See `GradientSpec.jvp`."""
    raise _no_second_derivatives(learner, "jvp")


@hookimpl
def hvp(learner: "Learner") -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Nothing that every backend can do. See `GradientSpec.hvp`."""
    raise _no_second_derivatives(learner, "hvp")


def _no_second_derivatives(learner: "Learner", what: str) -> ConfigError:
    info = learner.backend_info
    return ConfigError(
        f"learner.{what}: {info.why_not(Capability.SECOND_DERIVATIVES, learner.ops, learner.config)}: "
        "`plugrad backends` lists which backends do",
        hook=what,
    )


@hookimpl
def batch_program() -> BatchedProgram:
    """One program after another."""
    return BatchedProgram()


@hookimpl
def snapshot_variables(variables: Sequence[Variable]) -> list[Any]:
    """One after another."""
    return [each.snapshot() for each in variables]


@hookimpl
def seeded_generators() -> AbstractContextManager[Mapping[str, Any]]:
    """No generators beside Python's and numpy's."""
    return nullcontext({})


@hookimpl
def get_buffers() -> Mapping[str, Variable]:
    """No buffers."""
    return {}


@hookimpl
def export_onnx(learner: "Learner", module: RLModule) -> bytes:
    """Refuse: there is no exporter. See `BackendSpec.export_onnx`.

    Raises:
        ConfigError: always.
    """
    raise ConfigError(
        f"backend {learner.config.backend} cannot export a {type(module).__name__} to ONNX: it has no exporter "
        "for modules of your own (capability 'onnx'). The built-in networks of every backend can be exported"
    )


@hookimpl
def watch_operations() -> None:
    """None: `learner/update/broadcast_check.py` computes losses itself. See `BackendBuildSpec.watch_operations`."""
