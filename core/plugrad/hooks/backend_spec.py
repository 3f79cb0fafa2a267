"""What a framework must answer: the hooks of a backend plugin.

A backend is an object or a module with these functions, each marked `@plugrad.hookimpl`, named by an entry point:

    [options.entry_points]
    plugrad.backends =
        mine = plugrad_mine:backend

Every hook takes the learner first and may leave out arguments that it does not need. Hooks marked *traced* run as
plain Python once, while a program is traced, and then never again until the next trace.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from plugrad.gradients import Clip, FlatVariable, Gradients
from plugrad.hooks.backend_types import BackendInfo, Capability, Operation, Program, Shape
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookspec
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.ops import Ops, Variable
from plugrad.optimizers import Optimizer
from plugrad.rl_module import RLModule
from plugrad.types import Array, ModuleBatches, ModuleID, ParamRef, Tensor

__all__ = ["BackendInfo", "BackendSpec", "Capability", "Operation", "Program", "Shape"]


class BackendSpec:
    """Hook specifications of a backend."""

    @hookspec(firstresult=True)
    def backend_info(self) -> BackendInfo:
        """Name, version, devices and capabilities. Called by the learner at build and by `plugrad doctor`.

        @hookimpl
        def backend_info():
            return BackendInfo("mine", mine.__version__)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def ops(self, learner: LearnerProtocol) -> Ops:
        """The tensor functions of this framework (`plugrad.ops.Ops`). Called once, at build.

        @hookimpl
        def ops():
            return plugrad_mine.ops
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_tensor_variable(
        self, learner: LearnerProtocol, value: Any, dtype: str | None, trainable: bool
    ) -> Variable:
        """A variable of the framework with this value, on the learner's device: what changes between updates.

        Floats become float32 and ints int32 unless `dtype` says otherwise.

            @hookimpl
            def get_tensor_variable(value, dtype):
                return MyVariable(value, dtype)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def build_module(
        self,
        learner: LearnerProtocol,
        module_id: ModuleID,
        module_spec: RLModuleSpec,
        network: Network,
        weights: Mapping[str, Array],
    ) -> RLModule:
        """The module that a spec without `module_class` describes, as this framework's module around a network.

        `network` computes, over this backend's ops; `weights` is `{parameter name: float32 array}`: its seeded initial
        values, equal on every backend, in canonical order and shape.

            @hookimpl
            def build_module(module_spec, network, weights):
                return MyNetworkModule(module_spec, network, weights)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def wrap_module(
        self, learner: LearnerProtocol, module_id: ModuleID, module: Any, module_spec: RLModuleSpec
    ) -> RLModule:
        """A model of the framework that is no `RLModule`, given as `Learner(module=...)`, made one.

        The model is called with the observations [B, ...] and returns the action distribution's inputs [B, inputs],
        `(inputs, values [B])`, or `{column: tensor}`. Raise `ConfigError` for what is no model of this framework.

            @hookimpl
            def wrap_module(module, module_spec):
                return MyModelModule(module, module_spec)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def is_module_compatible_with_learner(self, learner: LearnerProtocol, module: RLModule) -> bool:
        """Whether this backend can train the module; others live beside the trained ones without an optimizer.

        @hookimpl
        def is_module_compatible_with_learner(module):
            return isinstance(module, mine.Module)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_parameters(self, learner: LearnerProtocol, module: RLModule) -> list[Any]:
        """The module's trainable parameters, the framework's own objects, in the module's order.

        @hookimpl
        def get_parameters(module):
            return list(module.parameters())
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_buffers(self, learner: LearnerProtocol, module: RLModule) -> Mapping[str, Variable]:
        """What the module keeps beside trained parameters, as variables by their names in `module.get_state()`.

        Statistics of normalisation, counters, seeds, frozen parameters. An update undoes them after an error, and a
        program finds them among its `variables`. Learners of a group make them equal after each update: floats by their
        mean over rows, all else as on learner 0. `read` gives what the module computes with, in programs too.
        Default: none. Called when modules are built.

            @hookimpl
            def get_buffers(module):
                return {name: MyVariable.around(each) for name, each in module.buffers()}
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_param_ref(self, learner: LearnerProtocol, param: Any) -> ParamRef:
        """The stable key of a parameter of this learner: `<module id>/<parameter name>`.

        @hookimpl
        def get_param_ref(learner, param):
            return names_of(learner)[id(param)]
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def flatten_parameters(self, learner: LearnerProtocol, params: Sequence[Any]) -> FlatVariable:
        """One flat float32 variable behind these parameters, which stay the module's ordinary parameters.

        Called once per registered optimizer. Order in the buffer is the order of `params`.

            @hookimpl
            def flatten_parameters(learner, params):
                return MyFlatVariable([learner.get_param_ref(p) for p in params], params)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def convert_batch_type(self, learner: LearnerProtocol, batch: Mapping[str, Any]) -> dict[str, Any]:
        """A (nested) dict of numpy arrays as this framework's tensors on the learner's device: float64 becomes float32.

        @hookimpl
        def convert_batch_type(batch):
            return tree_map(mine.from_numpy, batch)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def convert_to_numpy(self, learner: LearnerProtocol, tensors: Any) -> Any:
        """A (nested) dict or list of tensors as numpy copies: the only crossing back.

        @hookimpl
        def convert_to_numpy(tensors):
            return tree_map(mine.to_numpy, tensors)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def differentiate(
        self,
        learner: LearnerProtocol,
        variables: Sequence[FlatVariable],
        loss_fn: Callable[[], tuple[dict[ModuleID, Tensor], Any]],
    ) -> tuple[dict[ModuleID, Tensor], Any, Gradients]:
        """Call `loss_fn` under the framework's autograd, then `learner.compute_gradients`. Traced.

        Args:
            variables: the flat parameters to differentiate by, one per optimizer that steps now.
            loss_fn: `() -> (losses, aux)`; while it runs, modules must compute with what the backend differentiates by.

        Returns:
            `(losses, aux, gradients)` with what `compute_gradients` returned.

            @hookimpl
            def differentiate(learner, variables, loss_fn):
                with mine.Tape() as tape:
                    losses, aux = loss_fn()
                return losses, aux, learner.compute_gradients(losses, tape=tape)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def watch_operations(self, learner: LearnerProtocol) -> AbstractContextManager[list[Operation]]:
        """Note the operations of a block of tensor code. Called around the first losses of each program. Traced.

        The list that the context manager yields is complete when the block is over. By it the core finds tensors that
        broadcast where one number per row was meant. The default notes calls of `learner.ops` and the results of
        arithmetic (`a - b`) that are given to them; code that is the framework's own throughout is not seen by it.

            @hookimpl
            def watch_operations():
                return my_recorder()
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def compute_gradients(
        self, learner: LearnerProtocol, loss_per_module: dict[ModuleID, Tensor], kwargs: dict[str, Any]
    ) -> Gradients:
        """Gradients of the sum of the losses, for every registered parameter. Traced.

        `kwargs` is what `differentiate` (or a user: tf2's `gradient_tape=`) passes along.

            @hookimpl
            def compute_gradients(learner, loss_per_module, kwargs):
                return kwargs["tape"].gradient(sum(loss_per_module.values()))
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def reduce_gradients(self, learner: LearnerProtocol, gradients: Gradients) -> Gradients:
        """The gradients of all learners of a group, added up; alone, the gradients. Traced.

        Every learner has weighted its losses by its part of the rows, so that the sum is the gradient of the whole
        batch. Default: through numpy, for backends that do not trace.

            @hookimpl
            def reduce_gradients(learner, gradients):
                if learner.collective is None:
                    return gradients
                return plugrad.gradients.exchanged(mine.ops, gradients, learner.collective.all_reduce)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_clip_function(self, learner: LearnerProtocol) -> Clip:
        """The function that clips one optimizer's gradients (`plugrad.gradients.Clip`). Called once per step, traced.

        @hookimpl
        def get_clip_function(learner):
            return functools.partial(clip_gradients, learner.ops)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def check_registered_optimizer(
        self, learner: LearnerProtocol, optimizer: Any, params: Sequence[Any]
    ) -> None:
        """Refuse what cannot be stepped: raise `OptimizerError`.

        @hookimpl
        def check_registered_optimizer(optimizer, params):
            if not isinstance(optimizer, (plugrad.optimizers.Optimizer, mine.Optimizer)):
                raise OptimizerError(...)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def wrap_optimizer(self, learner: LearnerProtocol, optimizer: Any) -> Optimizer:
        """An optimizer of the framework with the face of `plugrad.optimizers.Optimizer`; others as they are.

        Called once per registered optimizer, after `check_registered_optimizer`, for backends with
        `Capability.FRAMEWORK_OPTIMIZERS`. The face is `bind`, `step`, `parameters`, `variables` and the three methods
        of slots.

            @hookimpl
            def wrap_optimizer(optimizer):
                return MyNativeOptimizer(optimizer) if isinstance(optimizer, mine.Optimizer) else optimizer
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_optimizer_lr(self, learner: LearnerProtocol, optimizer: Any) -> float:
        """The learning rate of an optimizer, neutral or native, as a float.

        @hookimpl
        def get_optimizer_lr(optimizer):
            return float(optimizer.lr.numpy())
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def set_optimizer_lr(self, learner: LearnerProtocol, optimizer: Any, lr: float) -> None:
        """Set the learning rate of an optimizer, neutral or native. Must not cause a new trace.

        @hookimpl
        def set_optimizer_lr(optimizer, lr):
            optimizer.lr.assign(lr)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def compile_update(
        self,
        learner: LearnerProtocol,
        step: Callable[[ModuleBatches], dict[str, Tensor]],
        variables: Sequence[Variable],
        mode: str,
    ) -> Program:
        """Turn the core's step into the fastest program that this framework can make of it.

        Args:
            step: `step(minibatch) -> {metric: scalar}` with `minibatch = {module_id: mapping of columns}`, such as
                `plugrad.batch.Rows`. It reads and assigns `variables`, and nothing else changes.
            mode: what the user asked for: `"none"`, `"forward_train"`, `"complete_update"` or `"auto"`.

            class Loop(Program):
                def run(self, columns, indices, num_steps):
                    batches = [{m: Rows(m, columns[m], indices[m][n]) for m in columns} for n in range(num_steps)]
                    return means([self.step(batch) for batch in batches])


            @hookimpl
            def compile_update(step, mode):
                loop = Loop("none", "a loop in Python")
                loop.step = step
                return loop
        """
        raise NotImplementedError
