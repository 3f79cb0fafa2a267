"""The Learner's methods that are hooks: each asks the provider that the plugins agreed on.

A subclass overrides them, a plugin wraps them (`plugrad.hooks.dispatch`). What they mean is said once, in the hook's
specification (`plugrad.hooks`); what the core answers stands in `defaults`, `step` and `optimizer_registry`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from plugrad.config import Config
from plugrad.deprecation import adaptable
from plugrad.gradients import Clip, FlatVariable, Gradients, Layout
from plugrad.hooks.backend_spec import Program
from plugrad.hooks.manager import HookManager
from plugrad.learner.optimizer_registry import check_names
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.ops import Variable
from plugrad.optimizers import Optimizer
from plugrad.rl_module import RLModule
from plugrad.schedules import ConfigView
from plugrad.types import (
    ALL_MODULES,
    DEFAULT_MODULE_ID,
    DEFAULT_OPTIMIZER,
    Array,
    ModuleBatches,
    ModuleID,
    ParamRef,
    Tensor,
)


class HookMethods:
    """Relays of a Learner to its plugins."""

    config: Config
    weights_version: int
    _hooks: HookManager

    @property
    def layouts(self) -> list[Layout]:
        """The flat layouts of all optimizers, in registration order."""
        raise NotImplementedError

    def config_view(self, module_id: ModuleID) -> ConfigView:
        """A module's config with scheduled fields as tensors: what losses get."""
        raise NotImplementedError

    def _provide(self, hook: str, **arguments: Any) -> Any:
        return self._hooks.provide(hook, learner=self, **arguments)

    # --- modules ------------------------------------------------------------------------------------------------

    def _build_network(self, *, module_id: ModuleID, config: Config, module_spec: RLModuleSpec) -> Network:
        network: Network = self._provide(
            "build_network", module_id=module_id, config=config, module_spec=module_spec
        )
        return network

    def _build_module(
        self,
        *,
        module_id: ModuleID,
        module_spec: RLModuleSpec,
        network: Network,
        weights: Mapping[str, Array],
    ) -> RLModule:
        module: RLModule = self._provide(
            "build_module", module_id=module_id, module_spec=module_spec, network=network, weights=weights
        )
        return module

    def _wrap_module(self, *, module_id: ModuleID, module: Any, module_spec: RLModuleSpec) -> RLModule:
        wrapped: RLModule = self._provide(
            "wrap_module", module_id=module_id, module=module, module_spec=module_spec
        )
        return wrapped

    def _get_buffers(self, module: RLModule) -> Mapping[str, Variable]:
        buffers: Mapping[str, Variable] = self._provide("get_buffers", module=module)
        return buffers

    def _get_exploration_inputs(self, *, module_id: ModuleID, fwd_out: Mapping[str, Array]) -> Array:
        """What actions are sampled from while exploring: inputs [B, inputs] of the action distribution, in numpy."""
        inputs: Array = self._provide("get_exploration_inputs", module_id=module_id, fwd_out=fwd_out)
        return inputs

    # --- update -------------------------------------------------------------------------------------------------

    def _update(self, batch: ModuleBatches) -> tuple[Any, dict[ModuleID, Tensor], dict[str, Tensor]]:
        """One gradient step on one minibatch -> `(fwd_out, loss_per_module, metrics)`. Traced."""
        answer: tuple[Any, dict[ModuleID, Tensor], dict[str, Tensor]] = self._provide("update", batch=batch)
        return answer

    def before_gradient_based_update(self, *, timesteps: Mapping[str, int]) -> None:
        """Once per update, before the first minibatch."""
        self._provide("before_gradient_based_update", timesteps=timesteps)

    def after_gradient_based_update(self, *, timesteps: Mapping[str, int]) -> None:
        """Once per update, after the last minibatch: moves the schedules; an override calls super()."""
        self._provide("after_gradient_based_update", timesteps=timesteps)

    def should_module_be_updated(self, module_id: ModuleID, multi_agent_batch: Any = None) -> bool:
        """Whether a module is trained in this update."""
        return bool(
            self._provide(
                "should_module_be_updated", module_id=module_id, multi_agent_batch=multi_agent_batch
            )
        )

    def _convert_batch_type(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        converted: dict[str, Any] = self._provide("convert_batch_type", batch=batch)
        return converted

    def _convert_to_numpy(self, tensors: Any) -> Any:
        return self._provide("convert_to_numpy", tensors=tensors)

    def _compile_update(self, step: Any, variables: Sequence[Variable], mode: str) -> Program:
        program: Program = self._provide("compile_update", step=step, variables=variables, mode=mode)
        return program

    # --- loss ---------------------------------------------------------------------------------------------------

    def compute_losses(self, *, fwd_out: ModuleBatches, batch: ModuleBatches) -> dict[ModuleID, Tensor]:
        """`{module_id: scalar loss}`; override for joint losses. Traced."""
        losses: dict[ModuleID, Tensor] = self._provide("compute_losses", fwd_out=fwd_out, batch=batch)
        return losses

    @adaptable
    def compute_loss_for_module(
        self,
        *,
        module_id: ModuleID,
        config: ConfigView,
        batch: Mapping[str, Tensor],
        fwd_out: Mapping[str, Tensor],
    ) -> Tensor:
        """The scalar loss of one module on one minibatch. Traced."""
        return self._provide(
            "compute_loss_for_module", module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )

    # --- optimizers ---------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> None:
        """Register the optimizers of all modules."""
        self._provide("configure_optimizers")

    @adaptable
    def configure_optimizers_for_module(self, module_id: ModuleID, config: Config | None = None) -> None:
        """Register the optimizers of one module."""
        config = self.config.get_config_for_module(module_id) if config is None else config
        self._provide("configure_optimizers_for_module", module_id=module_id, config=config)

    def register_optimizer(
        self,
        *,
        module_id: ModuleID = ALL_MODULES,
        optimizer_name: str = DEFAULT_OPTIMIZER,
        optimizer: Any,
        params: Sequence[Any],
        lr_or_lr_schedule: Any = None,
    ) -> None:
        """Let an optimizer step these parameters.

        Args:
            module_id: whose it is; `ALL_MODULES` for one that modules share.
            optimizer_name: unique within the module.
            optimizer: of `plugrad.optimizers`, or the framework's own where the backend has the capability
                `"native_optimizers"`: a `torch.optim.Optimizer` over exactly `params`, a Keras optimizer not yet built.
            params: a list of the framework's parameters, from `get_parameters`.
            lr_or_lr_schedule: a float, `[[timestep, value], ...]`, or None if you set it yourself.

        Raises:
            OptimizerError: the name is taken, `params` is no list of parameters, or one of them has an optimizer.
        """
        self._provide(
            "register_optimizer",
            module_id=module_id,
            optimizer_name=optimizer_name,
            optimizer=optimizer,
            params=params,
            lr_or_lr_schedule=lr_or_lr_schedule,
        )

    def get_target_parameters(self, module_id: ModuleID, config: Config | None = None) -> Collection[str]:
        """Names of the parameters that `learner.targets[module_id]` copies; none: the module has no target network."""
        config = self.config.get_config_for_module(module_id) if config is None else config
        names: Collection[str] = self._provide("get_target_parameters", module_id=module_id, config=config)
        return names

    def get_optimizer(
        self, module_id: ModuleID = DEFAULT_MODULE_ID, optimizer_name: str = DEFAULT_OPTIMIZER
    ) -> Any:
        """An optimizer by module and name; KeyError if there is none."""
        return self._provide("get_optimizer", module_id=module_id, optimizer_name=optimizer_name)

    def get_optimizers_for_module(self, module_id: ModuleID = ALL_MODULES) -> list[tuple[str, Any]]:
        """`[(name, optimizer)]` of a module; of all of them for `ALL_MODULES`."""
        found: list[tuple[str, Any]] = self._provide("get_optimizers_for_module", module_id=module_id)
        return found

    def filter_param_dict_for_optimizer(
        self, param_dict: Mapping[ParamRef, Tensor], optimizer: Any
    ) -> Mapping[ParamRef, Tensor]:
        """The entries that belong to one optimizer."""
        part: Mapping[ParamRef, Tensor] = self._provide(
            "filter_param_dict_for_optimizer", param_dict=param_dict, optimizer=optimizer
        )
        return part

    def get_parameters(self, module: RLModule) -> list[Any]:
        """The framework's trainable parameters of a module."""
        params: list[Any] = self._provide("get_parameters", module=module)
        return params

    def get_param_ref(self, param: Any) -> ParamRef:
        """`<module id>/<parameter name>` of one of the modules' parameters."""
        ref: ParamRef = self._provide("get_param_ref", param=param)
        return ref

    def _wrap_optimizer(self, optimizer: Any) -> Optimizer:
        wrapped: Optimizer = self._provide("wrap_optimizer", optimizer=optimizer)
        return wrapped

    def _flatten_parameters(self, params: Sequence[Any]) -> FlatVariable:
        flat: FlatVariable = self._provide("flatten_parameters", params=params)
        return flat

    def _is_module_compatible_with_learner(self, module: RLModule) -> bool:
        return bool(self._provide("is_module_compatible_with_learner", module=module))

    def _check_registered_optimizer(self, optimizer: Any, params: Sequence[Any]) -> None:
        self._provide("check_registered_optimizer", optimizer=optimizer, params=params)

    def _get_optimizer_lr(self, optimizer: Any) -> float:
        return float(self._provide("get_optimizer_lr", optimizer=optimizer))

    def _set_optimizer_lr(self, optimizer: Any, lr: float) -> None:
        self._provide("set_optimizer_lr", optimizer=optimizer, lr=lr)

    def _get_clip_function(self) -> Clip:
        clip: Clip = self._provide("get_clip_function")
        return clip

    def _get_tensor_variable(self, value: Any, dtype: str | None = None, trainable: bool = False) -> Variable:
        variable: Variable = self._provide(
            "get_tensor_variable", value=value, dtype=dtype, trainable=trainable
        )
        return variable

    # --- gradients ----------------------------------------------------------------------------------------------

    def _differentiate(
        self, variables: Sequence[FlatVariable], loss_fn: Callable[[], Any]
    ) -> tuple[dict[ModuleID, Tensor], Any, Gradients]:
        answer: tuple[dict[ModuleID, Tensor], Any, Gradients] = self._provide(
            "differentiate", variables=variables, loss_fn=loss_fn
        )
        return answer

    def compute_gradients(self, loss_per_module: dict[ModuleID, Tensor], **kwargs: Any) -> Gradients:
        """`{param ref: gradient of the all_reduce_metrics losses}` for every registered parameter. Traced."""
        gradients: Gradients = self._provide(
            "compute_gradients", loss_per_module=loss_per_module, kwargs=kwargs
        )
        return gradients

    def _reduce_gradients(self, gradients: Gradients) -> Gradients:
        reduced: Gradients = self._provide("reduce_gradients", gradients=gradients)
        return reduced

    def postprocess_gradients(self, gradients_dict: Gradients) -> Gradients:
        """All gradients on their way to the optimizers. Traced."""
        gradients: Gradients = self._provide("postprocess_gradients", gradients_dict=gradients_dict)
        return gradients

    @adaptable
    def postprocess_gradients_for_module(
        self,
        *,
        module_id: ModuleID,
        config: ConfigView | None = None,
        module_gradients_dict: Mapping[ParamRef, Tensor],
    ) -> Mapping[ParamRef, Tensor]:
        """One module's gradients: clipped as `grad_clip` says. Traced."""
        gradients: Mapping[ParamRef, Tensor] = self._provide(
            "postprocess_gradients_for_module",
            module_id=module_id,
            config=self.config_view(module_id) if config is None else config,
            module_gradients_dict=module_gradients_dict,
        )
        return gradients

    def apply_gradients(self, gradients_dict: Gradients) -> None:
        """Step the optimizers of which there are gradients. Traced.

        Args:
            gradients_dict: `{param ref: gradient}`. A parameter that is left out, or None, counts as zero beside
                others of its optimizer; an optimizer without any is not stepped.

        Raises:
            UnknownParameterError: a key is not the name of a parameter that an optimizer steps.
        """
        check_names(gradients_dict, self.layouts, "apply_gradients")
        self._provide("apply_gradients", gradients_dict=gradients_dict)
        self.weights_version += 1
