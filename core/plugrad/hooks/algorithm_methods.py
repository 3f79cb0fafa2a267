"""The Learner's methods that are hooks of `algorithm_spec`.

Written by `python tests/core/hook_texts.py`: change the specifications, not this file.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from plugrad.config import Config
from plugrad.deprecation import adaptable
from plugrad.hooks.hook_caller import HookCaller
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.schedules import ConfigView
from plugrad.types import Array, ModuleID, ParamRef, Tensor


class AlgorithmMethods(HookCaller, Protocol):
    """The Learner's methods that are hooks of `algorithm_spec`."""

    def _build_network(self, *, module_id: ModuleID, config: Config, module_spec: RLModuleSpec) -> Network:
        """Make the network of a module that names no `module_class`. Default: `plugrad.networks.ActorCritic`.

        Its `forward` is written over ops and so runs on every backend, and in numpy for acting.
        `plugrad.networks.encoders` has hidden layers for a network of your own.

        Args:
            module_id: of the module.
            config: the module's.
            module_spec: complete, with spaces.

        Returns:
            A `plugrad.networks.Network`.
        """
        answer: Network = self._provide(
            "build_network", module_id=module_id, config=config, module_spec=module_spec
        )
        return answer

    def _get_exploration_inputs(self, *, module_id: ModuleID, fwd_out: Mapping[str, Array]) -> Array:
        """The inputs of the action distribution that `compute_actions(explore=True)` samples from, in numpy.

        Default: `fwd_out["action_dist_inputs"]`, the policy itself. An algorithm without a stochastic policy says here
        how it explores. `action_logp` and `action_dist_inputs` among the columns of acting are those of this
        distribution.

        Args:
            module_id: who acts.
            fwd_out: the module's outputs, `{column: array [B, ...]}`.

        Returns:
            Inputs [B, inputs].
        """
        answer: Array = self._provide("get_exploration_inputs", module_id=module_id, fwd_out=fwd_out)
        return answer

    @adaptable
    def compute_loss_for_module(
        self,
        *,
        module_id: ModuleID,
        config: ConfigView,
        batch: Mapping[str, Tensor],
        fwd_out: Mapping[str, Tensor],
    ) -> Tensor:
        """Compute the loss of one module on one minibatch. Traced.

        Report values with `learner.register_metric(module_id, name, tensor)`.

        Args:
            module_id: of the module.
            config: the module's; scheduled fields and coefficients in it are scalar tensors.
            batch: `{column: tensor [B, ...]}`.
            fwd_out: what `forward_train` returned, `{column: tensor [B, ...]}`.

        Returns:
            A scalar tensor.
        """
        return self._provide(
            "compute_loss_for_module", module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )

    @adaptable
    def configure_optimizers_for_module(self, module_id: ModuleID, config: Config | None = None) -> None:
        """Register the optimizers of one module. Default: one, from `config.optimizer`, over all its parameters.

        Args:
            module_id: of the module.
            config: the module's, which the Learner's method takes by default.
        """
        config = self.config.get_config_for_module(module_id) if config is None else config
        self._provide("configure_optimizers_for_module", module_id=module_id, config=config)

    def get_target_parameters(self, module_id: ModuleID, config: Config | None = None) -> Collection[str]:
        """Name the parameters that the module's target network, `learner.targets[module_id]`, copies. Default: none.

        Asked once per module, at build and when it is added. The copy is part of the state and of what a failed update
        puts back. A loss reads `learner.targets[module_id].forward({"obs": batch["new_obs"]})`, also in a compiled
        program, and no gradient flows through it. `after_gradient_based_update` moves it: `update(tau=0.005)`, or a
        copy now and then: `update(every=500, now=timesteps)`.

        Args:
            module_id: of the module.
            config: the module's, which the Learner's method takes by default.

        Returns:
            Names in `module.get_state()`; none of them: the module has no target network.
        """
        config = self.config.get_config_for_module(module_id) if config is None else config
        answer: Collection[str] = self._provide("get_target_parameters", module_id=module_id, config=config)
        return answer

    @adaptable
    def postprocess_gradients_for_module(
        self,
        *,
        module_id: ModuleID,
        config: ConfigView | None = None,
        module_gradients_dict: Mapping[ParamRef, Tensor],
    ) -> Mapping[ParamRef, Tensor]:
        """Change one module's gradients before they are applied. Traced.

        Default: clip by `config.grad_clip` and report the norm; wrap it to add to it.

        Args:
            module_id: of the module; `ALL_MODULES` for optimizers that modules share.
            config: the module's as in a loss, which the Learner's method takes by default.
            module_gradients_dict: `{parameter ref: gradient}`.

        Returns:
            The gradients to apply, by the same keys.
        """
        config = self.config_view(module_id) if config is None else config
        answer: Mapping[ParamRef, Tensor] = self._provide(
            "postprocess_gradients_for_module",
            module_id=module_id,
            config=config,
            module_gradients_dict=module_gradients_dict,
        )
        return answer

    def before_gradient_based_update(self, *, timesteps: Mapping[str, int]) -> None:
        """Do something once per update, before the first minibatch and outside the program. Default: nothing.

        Args:
            timesteps: what `update` was given; empty if nothing.
        """
        self._provide("before_gradient_based_update", timesteps=timesteps)

    def after_gradient_based_update(self, *, timesteps: Mapping[str, int]) -> None:
        """Do something once per update, after the last minibatch and outside the program.

        Default: move the schedules to `timesteps`; wrap it, or call `super()`, to add to it. `learner.metrics` has the
        means of this update. An exception here still undoes the update.

        Args:
            timesteps: what `update` was given; empty if nothing.
        """
        self._provide("after_gradient_based_update", timesteps=timesteps)
