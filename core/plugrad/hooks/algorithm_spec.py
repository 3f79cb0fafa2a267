"""Hooks of an algorithm. The smallest algorithm has a loss, and `get_config_class` of `AlgorithmBuildSpec`.

    [options.entry_points]
    plugrad.algorithms =
        mine = plugrad_mine:plugin

`plugrad_mine.plugin` is an object or a module whose functions are marked `@plugrad.hookimpl`.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from plugrad.config import Config
from plugrad.contract import since
from plugrad.hooks.hook_caller import HookCaller
from plugrad.hooks.markers import learner_method
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.schedules import ConfigView
from plugrad.types import Array, ModuleID, ParamRef, Tensor


class AlgorithmSpec(HookCaller, Protocol):
    """Methods of the Learner that call the algorithm, which may also answer those of `LearnerSpec`."""

    @learner_method
    def _build_network(self, *, module_id: ModuleID, config: Config, module_spec: RLModuleSpec) -> Network:
        """Make the network of a module without a `module_class`. Default: `plugrad.networks.ActorCritic`.

        Its `forward` is written over ops, so it runs on every backend, and in numpy for acting.
        `plugrad.networks.encoders` has hidden layers for your own network.

        Args:
            module_id: the module's id.
            config: the module's config.
            module_spec: the complete spec, with spaces.

        Returns:
            A `plugrad.networks.Network`.

        Example:
            @hookimpl
            def build_network(module_spec):
                return MyNetwork(module_spec)
        """
        return self._provide("build_network", module_id=module_id, config=config, module_spec=module_spec)

    @learner_method
    def _get_exploration_inputs(self, *, module_id: ModuleID, fwd_out: Mapping[str, Array]) -> Array:
        """The inputs of the action distribution that `compute_actions(explore=True)` samples from, in numpy.

        Default: `fwd_out["action_dist_inputs"]`, the policy itself. An algorithm without a stochastic policy implements
        exploration here. The columns `action_logp` and `action_dist_inputs` of `compute_actions` are those of this
        distribution.

        Args:
            module_id: the module that acts.
            fwd_out: the module's outputs, `{column: array [B, ...]}`, and `action_mask` [B, choices] if actions are
                masked. The returned inputs are masked, too.

        Returns:
            Inputs [B, inputs].

        Example:
            @hookimpl
            def get_exploration_inputs(fwd_out):
                return fwd_out["action_dist_inputs"] / TEMPERATURE
        """
        return self._provide("get_exploration_inputs", module_id=module_id, fwd_out=fwd_out)

    @learner_method
    @since(2)
    def _get_exploration_tensors(self, *, module_id: ModuleID, fwd_out: Mapping[str, Tensor]) -> Tensor:
        """`get_exploration_inputs` of tensors, over ops: for environments of tensors, and `as_tensors=True`.

        Default: `fwd_out["action_dist_inputs"]`. An algorithm that answers `get_exploration_inputs` answers this hook,
        too; otherwise it does not explore in tensors, and says so.

        Args:
            module_id: the module that acts.
            fwd_out: the module's outputs, `{column: tensor [B, ...]}`, on the learner's device, and `action_mask`
                [B, choices] if actions are masked. The returned inputs are masked, too.

        Returns:
            Inputs [B, inputs]; nothing is copied to the host.

        Example:
            @hookimpl
            def get_exploration_tensors(fwd_out):
                return fwd_out["action_dist_inputs"] / TEMPERATURE
        """
        return self._provide("get_exploration_tensors", module_id=module_id, fwd_out=fwd_out)

    @learner_method
    def compute_loss_for_module(
        self,
        *,
        module_id: ModuleID,
        config: ConfigView,
        batch: Mapping[str, Tensor],
        fwd_out: Mapping[str, Tensor],
    ) -> Tensor:
        """Compute the loss of one module on one minibatch. Traced.

        Report values with `learner.register_metric(module_id, name, tensor)`. You may branch on which columns there
        are, and on shapes. Random numbers are columns (`get_noise_columns`). To train an actor but not the critic that
        evaluates its actions, let the critic compute with `stop_gradient` of its weights.

        Args:
            module_id: the module's id.
            config: the module's config; its scheduled fields and coefficients are scalar tensors. Where you call the
                method yourself, a plain config or None will do: the learner's tensors are put in.
            batch: `{column: tensor [B, ...]}`.
            fwd_out: what `forward_train` returned, `{column: tensor [B, ...]}`.

        Returns:
            A scalar tensor.

        Example:
            @hookimpl
            def compute_loss_for_module(learner, batch, fwd_out):
                return learner.ops.mean(learner.ops.square(fwd_out["vf_preds"] - batch["value_targets"]))
        """
        if config is None or isinstance(config, Config):
            config = self.config_view(module_id).over(config)
        return self._provide(
            "compute_loss_for_module", module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )

    @learner_method
    def configure_optimizers_for_module(self, module_id: ModuleID, config: Config | None = None) -> None:
        """Register the optimizers of one module. Default: one, from `config.optimizer`, over all its parameters.

        Args:
            module_id: the module's id.
            config: the module's config; the Learner's method uses it by default.

        Example:
            @hookimpl
            def configure_optimizers_for_module(learner, module_id, config):
                params = learner.get_parameters(learner.module[module_id])
                learner.register_optimizer(
                    module_id=module_id, optimizer=Adam(), params=params, lr_or_lr_schedule=config.lr
                )
        """
        config = self.config.get_config_for_module(module_id) if config is None else config
        self._provide("configure_optimizers_for_module", module_id=module_id, config=config)

    @learner_method
    def get_target_parameters(self, module_id: ModuleID, config: Config | None = None) -> Collection[str]:
        """Name the parameters that the module's target network, `learner.targets[module_id]`, copies. Default: none.

        Called once per module, at build and when the module is added. The copy is part of the state, and a failed
        update restores it. A loss calls `learner.targets[module_id].forward({"obs": batch["new_obs"]})`, also in a
        compiled program; no gradient flows through it. The settings `target_update`, `tau` and
        `target_network_update_freq` of an `OffPolicyConfig` say how the copy is updated: after gradient steps inside
        the program, or after updates. Without such settings, update it in `after_gradient_based_update`: with
        `update(tau=0.005)`, or with a copy every 500 timesteps: `update(every=500, now=timesteps)`.

        Args:
            module_id: the module's id.
            config: the module's config; the Learner's method uses it by default.

        Returns:
            Names in `module.get_state()`; if empty, the module has no target network.

        Example:
            @hookimpl
            def get_target_parameters(learner, module_id):
                return list(learner.module[module_id].get_state())
        """
        config = self.config.get_config_for_module(module_id) if config is None else config
        return self._provide("get_target_parameters", module_id=module_id, config=config)

    @learner_method
    def get_noise_columns(
        self, module_id: ModuleID, config: Config | None = None
    ) -> Mapping[str, tuple[int, ...]]:
        """Name the columns of random numbers that the loss of a module reads. Default: none.

        Called once per module, at build and when the module is added. For each row of each minibatch the learner draws
        standard normal numbers, float32, and adds them to the minibatch. It draws them in numpy from its stream
        `(module_id, "noise")`: equal seeds give equal numbers on every backend, in every update mode and for any number
        of learners. A failed update undoes the draw. A row that is used in two epochs gets new numbers. Sequences
        [B, T, ...] get numbers for each of their steps.

        Args:
            module_id: the module's id.
            config: the module's config; the Learner's method uses it by default.

        Returns:
            `{column: shape per row}`; `{"noise": (2,)}` gives the loss `batch["noise"]` [B, 2].

        Example:
            @hookimpl
            def get_noise_columns(learner, module_id):
                return {"action_noise": learner.module[module_id].action_space.shape}
        """
        config = self.config.get_config_for_module(module_id) if config is None else config
        return self._provide("get_noise_columns", module_id=module_id, config=config)

    @learner_method
    def postprocess_gradients_for_module(
        self,
        *,
        module_id: ModuleID,
        config: ConfigView | None = None,
        module_gradients_dict: Mapping[ParamRef, Tensor],
    ) -> Mapping[ParamRef, Tensor]:
        """Change one module's gradients before they are applied. Traced.

        Default: clip by `config.grad_clip` and report the norm; wrap the hook to do more.

        Args:
            module_id: the module's id; `ALL_MODULES` for optimizers that modules share.
            config: the module's config as in a loss; the Learner's method uses it by default.
            module_gradients_dict: `{parameter ref: gradient}`.

        Returns:
            The gradients to apply, with the same keys.

        Example:
            @hookimpl
            def postprocess_gradients_for_module(module_gradients_dict):
                return {ref: gradient * 0.5 for ref, gradient in module_gradients_dict.items()}
        """
        config = self.config_view(module_id) if config is None else config
        return self._provide(
            "postprocess_gradients_for_module",
            module_id=module_id,
            config=config,
            module_gradients_dict=module_gradients_dict,
        )

    @learner_method
    def before_gradient_based_update(self, *, timesteps: Mapping[str, int]) -> None:
        """Run once per update, before the first minibatch and outside the program. Default: nothing.

        Args:
            timesteps: the argument of `update`; empty if it was None.

        Example:
            @hookimpl(wrapper=True)
            def before_gradient_based_update(learner, timesteps):
                return (yield)
        """
        self._provide("before_gradient_based_update", timesteps=timesteps)

    @learner_method
    def after_gradient_based_update(self, *, timesteps: Mapping[str, int]) -> None:
        """Run once per update, after the last minibatch and outside the program.

        Default: move the schedules to `timesteps`, and update target networks with `target_update="update"`. Wrap the
        hook, or call `super()`, to do more. `learner.metrics` has the means of this update. An exception here still
        undoes the update.

        Args:
            timesteps: the argument of `update`; empty if it was None.

        Example:
            @hookimpl(wrapper=True)
            def after_gradient_based_update(learner, timesteps):
                yield
                for target in learner.targets.values():
                    target.update(tau=0.005)
        """
        self._provide("after_gradient_based_update", timesteps=timesteps)
