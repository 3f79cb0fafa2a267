"""What makes an algorithm: the hooks of an algorithm plugin. The smallest has `get_config_class` and a loss.

    [options.entry_points]
    plugrad.algorithms =
        mine = plugrad_mine:plugin

`plugrad_mine.plugin` is an object or a module whose functions are marked `@plugrad.hookimpl`.
"""

from collections.abc import Collection, Mapping
from typing import Any

from plugrad.config import Config
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookspec
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.schedules import ConfigView
from plugrad.training import Training
from plugrad.types import Array, ModuleID, ParamRef, Tensor


class AlgorithmSpec:
    """Hook specifications of an algorithm; those of the Learner in `LearnerSpec` may be implemented too."""

    @hookspec(firstresult=True)
    def get_config_class(self) -> type[Any]:
        """The algorithm's `AlgorithmConfig` subclass. Called when the algorithm is looked up by name.

        @hookimpl
        def get_config_class():
            return MyConfig
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_default_rl_module_spec(self, config: Config) -> RLModuleSpec:
        """The module to build when the user gave none. Default: policy and value networks from `model_config`.

        @hookimpl
        def get_default_rl_module_spec(config):
            return RLModuleSpec(model_config={"fcnet_hiddens": [256]})
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def build_network(
        self, learner: LearnerProtocol, module_id: ModuleID, config: Config, module_spec: RLModuleSpec
    ) -> Network:
        """The neutral network of a module without `module_class`. Default: `plugrad.networks.ActorCritic`.

        Written over ops, it runs on every backend. `config` is the module's.

            @hookimpl
            def build_network(module_spec):
                return MyNetwork(module_spec)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_learner_connectors(self, config: Config) -> list[Any]:
        """Pieces that make episodes into columns, after the user's and the default ones. Default: none.

        A piece is `piece(*, learner, batch, episodes) -> batch` in numpy. Called once, at build.

            @hookimpl
            def get_learner_connectors(config):
                return [GeneralAdvantageEstimation(config.gamma, config.lambda_)]
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_exploration_inputs(
        self, learner: LearnerProtocol, module_id: ModuleID, fwd_out: Mapping[str, Array]
    ) -> Array:
        """What the action distribution is made of while exploring, in numpy. Default: `fwd_out["action_dist_inputs"]`.

        Called at every step of acting with `explore=True`; `fwd_out` has the module's columns [B, ...].

            @hookimpl
            def get_exploration_inputs(fwd_out):
                return fwd_out["action_dist_inputs"] / TEMPERATURE
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_training_class(self) -> type[Training]:
        """What one `Algorithm.train()` does: a `plugrad.training.Training`. Default: `OnPolicyTraining`.

        Called once, when an Algorithm is built; a learner alone never asks.

            @hookimpl
            def get_training_class():
                return MyTraining
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def compute_loss_for_module(
        self,
        learner: LearnerProtocol,
        module_id: ModuleID,
        config: ConfigView,
        batch: Mapping[str, Tensor],
        fwd_out: Mapping[str, Tensor],
    ) -> Tensor:
        """The loss of one module on one minibatch: a scalar tensor. Traced.

        Args:
            config: the module's config; scheduled fields and coefficients in it are scalar tensors.
            batch: `{column: tensor [B, ...]}`.
            fwd_out: what `forward_train` returned.

            @hookimpl
            def compute_loss_for_module(learner, batch, fwd_out):
                return learner.ops.mean(learner.ops.square(fwd_out["vf_preds"] - batch["value_targets"]))
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def configure_optimizers_for_module(
        self, learner: LearnerProtocol, module_id: ModuleID, config: Config
    ) -> None:
        """Register the module's optimizers. Default: one, from `config.optimizer`, over all its parameters.

        @hookimpl
        def configure_optimizers_for_module(learner, module_id, config):
            params = learner.get_parameters(learner.module[module_id])
            learner.register_optimizer(
                module_id=module_id, optimizer=Adam(), params=params, lr_or_lr_schedule=config.lr
            )
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_target_parameters(
        self, learner: LearnerProtocol, module_id: ModuleID, config: Config
    ) -> Collection[str]:
        """Names of the module's parameters that `learner.targets[module_id]` copies. Default: none, no target network.

        Called once per module, at build and when it is added; a loss reads `learner.targets[module_id].forward(batch)`.

            @hookimpl
            def get_target_parameters(learner, module_id):
                return list(learner.module[module_id].get_state())
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def postprocess_gradients_for_module(
        self,
        learner: LearnerProtocol,
        module_id: ModuleID,
        config: ConfigView,
        module_gradients_dict: Mapping[ParamRef, Tensor],
    ) -> Mapping[ParamRef, Tensor]:
        """One module's gradients before they are applied. Default: clip by `config.grad_clip`, log the norm. Traced.

        @hookimpl
        def postprocess_gradients_for_module(module_gradients_dict):
            return {ref: gradient * 0.5 for ref, gradient in module_gradients_dict.items()}
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def before_gradient_based_update(self, learner: LearnerProtocol, timesteps: Mapping[str, int]) -> None:
        """Called once per `update`, before anything else. Default: nothing. Wrap it (`wrapper=True`) to add to it.

        @hookimpl(wrapper=True)
        def before_gradient_based_update(learner, timesteps):
            return (yield)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def after_gradient_based_update(self, learner: LearnerProtocol, timesteps: Mapping[str, int]) -> None:
        """Called once per `update`, after the last minibatch. Default: move schedules to `timesteps`. Wrap it to add.

        `learner.metrics` holds the means of this update.

            @hookimpl(wrapper=True)
            def after_gradient_based_update(learner, timesteps):
                yield
                for target in learner.targets.values():
                    target.update(tau=0.005)
        """
        raise NotImplementedError
