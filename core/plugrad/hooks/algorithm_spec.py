"""Hooks of an algorithm. The smallest algorithm has `get_config_class` and a loss.

    [options.entry_points]
    plugrad.algorithms =
        mine = plugrad_mine:plugin

`plugrad_mine.plugin` is an object or a module whose functions are marked `@plugrad.hookimpl`.
"""

from collections.abc import Collection, Mapping
from typing import Any

from plugrad.config import Config
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookspec, learner_method
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.schedules import ConfigView
from plugrad.training import Training
from plugrad.types import Array, ModuleID, ParamRef, Tensor


class AlgorithmSpec:
    """Hook specifications of an algorithm; those of the Learner in `LearnerSpec` may be implemented too."""

    @hookspec(firstresult=True)
    def get_config_class(self) -> type[Any]:
        """The algorithm's `AlgorithmConfig` subclass. Asked when the algorithm is looked up by name.

        Returns:
            The class.

        Example:
            @hookimpl
            def get_config_class():
                return MyConfig
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_default_rl_module_spec(self, config: Config) -> RLModuleSpec:
        """The module to build when the user gave none. Asked when modules are built.

        Default: the built-in policy and value networks, as `model_config` says.

        Args:
            config: the module's.

        Returns:
            A spec; the config fills in the spaces.

        Example:
            @hookimpl
            def get_default_rl_module_spec(config):
                return RLModuleSpec(model_config={"fcnet_hiddens": [256]})
        """
        raise NotImplementedError

    @learner_method("_build_network", keyword_only=True)
    @hookspec(firstresult=True)
    def build_network(
        self, learner: LearnerProtocol, module_id: ModuleID, config: Config, module_spec: RLModuleSpec
    ) -> Network:
        """Make the network of a module that names no `module_class`. Default: `plugrad.networks.ActorCritic`.

        Its `forward` is written over ops and so runs on every backend, and in numpy for acting.
        `plugrad.networks.encoders` has hidden layers for a network of your own.

        Args:
            learner: the learner.
            module_id: of the module.
            config: the module's.
            module_spec: complete, with spaces.

        Returns:
            A `plugrad.networks.Network`.

        Example:
            @hookimpl
            def build_network(module_spec):
                return MyNetwork(module_spec)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_learner_connectors(self, config: Config) -> list[Any]:
        """The pieces that make episodes into columns, after the user's and the default ones. Default: none.

        Asked once, at build.

        Args:
            config: the learner's.

        Returns:
            Pieces `piece(*, learner, batch, episodes) -> batch`, in numpy.

        Example:
            @hookimpl
            def get_learner_connectors(config):
                return [GeneralAdvantageEstimation(config.gamma, config.lambda_)]
        """
        raise NotImplementedError

    @learner_method("_get_exploration_inputs", keyword_only=True)
    @hookspec(firstresult=True)
    def get_exploration_inputs(
        self, learner: LearnerProtocol, module_id: ModuleID, fwd_out: Mapping[str, Array]
    ) -> Array:
        """The inputs of the action distribution that `compute_actions(explore=True)` samples from, in numpy.

        Default: `fwd_out["action_dist_inputs"]`, the policy itself. An algorithm without a stochastic policy says here
        how it explores. `action_logp` and `action_dist_inputs` among the columns of acting are those of this
        distribution.

        Args:
            learner: the learner.
            module_id: who acts.
            fwd_out: the module's outputs, `{column: array [B, ...]}`.

        Returns:
            Inputs [B, inputs].

        Example:
            @hookimpl
            def get_exploration_inputs(fwd_out):
                return fwd_out["action_dist_inputs"] / TEMPERATURE
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_training_class(self) -> type[Training]:
        """What one `Algorithm.train()` does. Asked once, when an Algorithm is built; a learner alone never asks.

        Default: `OnPolicyTraining`, which samples a batch and updates once. The class is made with the Algorithm, whose
        `sample()`, `update()`, `env_runner`, `learner_group` and `config` it uses. However it changes the learners,
        through `update()` or by the `learner_group` itself, the next `sample()` acts with the new weights. What it
        keeps from one iteration to the next, such as a replay buffer, goes through its `get_state` and `set_state` into
        the Algorithm's checkpoints.

        Returns:
            A subclass of `plugrad.training.Training`.

        Example:
            @hookimpl
            def get_training_class():
                return MyTraining
        """
        raise NotImplementedError

    @learner_method(keyword_only=True, adaptable=True)
    @hookspec(firstresult=True)
    def compute_loss_for_module(
        self,
        learner: LearnerProtocol,
        module_id: ModuleID,
        config: ConfigView,
        batch: Mapping[str, Tensor],
        fwd_out: Mapping[str, Tensor],
    ) -> Tensor:
        """Compute the loss of one module on one minibatch. Traced.

        Report values with `learner.register_metric(module_id, name, tensor)`.

        Args:
            learner: the learner.
            module_id: of the module.
            config: the module's; scheduled fields and coefficients in it are scalar tensors.
            batch: `{column: tensor [B, ...]}`.
            fwd_out: what `forward_train` returned, `{column: tensor [B, ...]}`.

        Returns:
            A scalar tensor.

        Example:
            @hookimpl
            def compute_loss_for_module(learner, batch, fwd_out):
                return learner.ops.mean(learner.ops.square(fwd_out["vf_preds"] - batch["value_targets"]))
        """
        raise NotImplementedError

    @learner_method(adaptable=True, config=None)
    @hookspec(firstresult=True)
    def configure_optimizers_for_module(
        self, learner: LearnerProtocol, module_id: ModuleID, config: Config
    ) -> None:
        """Register the optimizers of one module. Default: one, from `config.optimizer`, over all its parameters.

        Args:
            learner: the learner.
            module_id: of the module.
            config: the module's, which the Learner's method takes by default.

        Example:
            @hookimpl
            def configure_optimizers_for_module(learner, module_id, config):
                params = learner.get_parameters(learner.module[module_id])
                learner.register_optimizer(
                    module_id=module_id, optimizer=Adam(), params=params, lr_or_lr_schedule=config.lr
                )
        """
        raise NotImplementedError

    @learner_method(config=None)
    @hookspec(firstresult=True)
    def get_target_parameters(
        self, learner: LearnerProtocol, module_id: ModuleID, config: Config
    ) -> Collection[str]:
        """Name the parameters that the module's target network, `learner.targets[module_id]`, copies. Default: none.

        Asked once per module, at build and when it is added. The copy is part of the state and of what a failed update
        puts back. A loss reads `learner.targets[module_id].forward({"obs": batch["new_obs"]})`, also in a compiled
        program, and no gradient flows through it. `after_gradient_based_update` moves it: `update(tau=0.005)`, or a
        copy now and then: `update(every=500, now=timesteps)`.

        Args:
            learner: the learner.
            module_id: of the module.
            config: the module's, which the Learner's method takes by default.

        Returns:
            Names in `module.get_state()`; none of them: the module has no target network.

        Example:
            @hookimpl
            def get_target_parameters(learner, module_id):
                return list(learner.module[module_id].get_state())
        """
        raise NotImplementedError

    @learner_method(keyword_only=True, adaptable=True, config=None)
    @hookspec(firstresult=True)
    def postprocess_gradients_for_module(
        self,
        learner: LearnerProtocol,
        module_id: ModuleID,
        config: ConfigView,
        module_gradients_dict: Mapping[ParamRef, Tensor],
    ) -> Mapping[ParamRef, Tensor]:
        """Change one module's gradients before they are applied. Traced.

        Default: clip by `config.grad_clip` and report the norm; wrap it to add to it.

        Args:
            learner: the learner.
            module_id: of the module; `ALL_MODULES` for optimizers that modules share.
            config: the module's as in a loss, which the Learner's method takes by default.
            module_gradients_dict: `{parameter ref: gradient}`.

        Returns:
            The gradients to apply, by the same keys.

        Example:
            @hookimpl
            def postprocess_gradients_for_module(module_gradients_dict):
                return {ref: gradient * 0.5 for ref, gradient in module_gradients_dict.items()}
        """
        raise NotImplementedError

    @learner_method(keyword_only=True)
    @hookspec(firstresult=True)
    def before_gradient_based_update(self, learner: LearnerProtocol, timesteps: Mapping[str, int]) -> None:
        """Do something once per update, before the first minibatch and outside the program. Default: nothing.

        Args:
            learner: the learner.
            timesteps: what `update` was given; empty if nothing.

        Example:
            @hookimpl(wrapper=True)
            def before_gradient_based_update(learner, timesteps):
                return (yield)
        """
        raise NotImplementedError

    @learner_method(keyword_only=True)
    @hookspec(firstresult=True)
    def after_gradient_based_update(self, learner: LearnerProtocol, timesteps: Mapping[str, int]) -> None:
        """Do something once per update, after the last minibatch and outside the program.

        Default: move the schedules to `timesteps`; wrap it, or call `super()`, to add to it. `learner.metrics` has the
        means of this update. An exception here still undoes the update.

        Args:
            learner: the learner.
            timesteps: what `update` was given; empty if nothing.

        Example:
            @hookimpl(wrapper=True)
            def after_gradient_based_update(learner, timesteps):
                yield
                for target in learner.targets.values():
                    target.update(tau=0.005)
        """
        raise NotImplementedError
