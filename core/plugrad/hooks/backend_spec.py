"""Hooks of a backend: who it is, tensors, variables, modules and the program of an update.

A backend is an object or a module with these functions and those of `gradient_spec`, each marked `@plugrad.hookimpl`,
named by an entry point:

    [options.entry_points]
    plugrad.backends =
        mine = plugrad_mine:backend

Every hook takes the learner first and may leave out arguments that it does not need. Hooks marked *traced* run as
plain Python once, while a program is traced, and then never again until the next trace.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from plugrad.hooks.backend_types import BackendInfo, Capability, Operation, Program, Shape, Step
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookspec, learner_method
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.ops import Ops, Variable
from plugrad.rl_module import RLModule
from plugrad.types import Array, ModuleID

__all__ = ["BackendInfo", "BackendSpec", "Capability", "Operation", "Program", "Shape", "Step"]


class BackendSpec:
    """Hook specifications of a backend; those of its gradients and optimizers are in `GradientSpec`."""

    @hookspec(firstresult=True)
    def backend_info(self) -> BackendInfo:
        """Who the backend is: name, version of the framework, devices and capabilities.

        Asked when a learner is built and by `plugrad doctor`.

        Returns:
            The description. Its first device is what `device="auto"` chooses.

        Example:
            @hookimpl
            def backend_info():
                return BackendInfo("mine", mine.__version__)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def ops(self, learner: LearnerProtocol) -> Ops:
        """The tensor functions of the framework, over which losses and networks are written. Asked once, at build.

        Args:
            learner: the learner that is being built; it has `config` and `device`.

        Returns:
            An object or module with the functions of `plugrad.ops.Ops`.

        Example:
            @hookimpl
            def ops():
                return plugrad_mine.ops
        """
        raise NotImplementedError

    @learner_method("_get_tensor_variable", dtype=None, trainable=False)
    @hookspec(firstresult=True)
    def get_tensor_variable(
        self, learner: LearnerProtocol, value: Any, dtype: str | None, trainable: bool
    ) -> Variable:
        """Make a variable of the framework on the learner's device.

        Learning rates, coefficients, slots of optimizers: everything that changes between updates without a new trace.

        Args:
            learner: the learner.
            value: a number or an array; the variable keeps its shape.
            dtype: such as "float32"; None: float32 for floats, int32 for ints.
            trainable: whether gradients may be taken by it.

        Returns:
            The variable (`plugrad.ops.Variable`).

        Example:
            @hookimpl
            def get_tensor_variable(value, dtype):
                return MyVariable(value, dtype)
        """
        raise NotImplementedError

    @learner_method("_build_module", keyword_only=True)
    @hookspec(firstresult=True)
    def build_module(
        self,
        learner: LearnerProtocol,
        module_id: ModuleID,
        module_spec: RLModuleSpec,
        network: Network,
        weights: Mapping[str, Array],
    ) -> RLModule:
        """Make the framework's module around a network, for a spec that names no `module_class`.

        The module holds the weights; `network` computes with them, over this backend's ops.

        Args:
            learner: the learner.
            module_id: of the module.
            module_spec: complete, with spaces.
            network: see `build_network`.
            weights: `{parameter name: float32 array}`, drawn from the seed and equal on every backend, in the
                network's order and shapes.

        Returns:
            The module.

        Example:
            @hookimpl
            def build_module(module_spec, network, weights):
                return MyNetworkModule(module_spec, network, weights)
        """
        raise NotImplementedError

    @learner_method("_wrap_module", keyword_only=True)
    @hookspec(firstresult=True)
    def wrap_module(
        self, learner: LearnerProtocol, module_id: ModuleID, module: Any, module_spec: RLModuleSpec
    ) -> RLModule:
        """Make an `RLModule` of a model of the framework that is none, such as one given as `Learner(module=...)`.

        Args:
            learner: the learner.
            module_id: of the module.
            module: is called with the observations [B, ...] and returns the action distribution's inputs [B, inputs],
                `(inputs, values [B])`, or `{column: tensor}`.
            module_spec: complete, with spaces.

        Returns:
            The module around the model.

        Raises:
            ConfigError: it is no model of this framework.

        Example:
            @hookimpl
            def wrap_module(module, module_spec):
                return MyModelModule(module, module_spec)
        """
        raise NotImplementedError

    @learner_method("_is_module_compatible_with_learner")
    @hookspec(firstresult=True)
    def is_module_compatible_with_learner(self, learner: LearnerProtocol, module: RLModule) -> bool:
        """Whether the backend can train a module. Others live beside the trained ones, without an optimizer.

        Args:
            learner: the learner.
            module: one of its modules.

        Returns:
            True if it can be trained.

        Example:
            @hookimpl
            def is_module_compatible_with_learner(module):
                return isinstance(module, mine.Module)
        """
        raise NotImplementedError

    @learner_method()
    @hookspec(firstresult=True)
    def get_parameters(self, learner: LearnerProtocol, module: RLModule) -> list[Any]:
        """List a module's trainable parameters.

        Args:
            learner: the learner.
            module: one that the backend can train.

        Returns:
            The framework's own objects, in the module's order.

        Example:
            @hookimpl
            def get_parameters(module):
                return list(module.parameters())
        """
        raise NotImplementedError

    @learner_method("_get_buffers")
    @hookspec(firstresult=True)
    def get_buffers(self, learner: LearnerProtocol, module: RLModule) -> Mapping[str, Variable]:
        """List what a module keeps beside its trained parameters: statistics, counters, seeds, frozen parameters.

        Asked when modules are built. Default: none. An update that fails puts them back, and `compile_update` finds
        them among its `variables`. Learners of a group make them equal after each update: floats become the mean over
        the learners, weighted by rows; all else becomes that of learner 0.

        Args:
            learner: the learner.
            module: one that the backend can train.

        Returns:
            `{name in module.get_state(): variable}`. `read` gives what the module computes with, in programs too.

        Example:
            @hookimpl
            def get_buffers(module):
                return {name: MyVariable.around(each) for name, each in module.buffers()}
        """
        raise NotImplementedError

    @learner_method("_convert_batch_type")
    @hookspec(firstresult=True)
    def convert_batch_type(self, learner: LearnerProtocol, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Convert numpy arrays to tensors on the learner's device.

        Args:
            learner: the learner.
            batch: a (nested) dict of arrays; float64 becomes float32.

        Returns:
            The same dict with tensors.

        Example:
            @hookimpl
            def convert_batch_type(batch):
                return tree_map(mine.from_numpy, batch)
        """
        raise NotImplementedError

    @learner_method("_convert_to_numpy")
    @hookspec(firstresult=True)
    def convert_to_numpy(self, learner: LearnerProtocol, tensors: Any) -> Any:
        """Convert tensors to numpy copies. It is the only way back.

        Args:
            learner: the learner.
            tensors: a tensor, or a (nested) dict or list of tensors.

        Returns:
            The same with arrays.

        Example:
            @hookimpl
            def convert_to_numpy(tensors):
                return tree_map(mine.to_numpy, tensors)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def watch_operations(self, learner: LearnerProtocol) -> AbstractContextManager[list[Operation]]:
        """Note the operations of a block of tensor code. Traced.

        Called around the first losses of each program, to find tensors that broadcast where one number per row was
        meant. The default notes calls of `learner.ops` and the results of arithmetic (`a - b`) that are given to them;
        code that is the framework's own throughout is not seen by it.

        Args:
            learner: the learner, in a step.

        Returns:
            A context manager that yields a list, which is complete when the block is over.

        Example:
            @hookimpl
            def watch_operations():
                return my_recorder()
        """
        raise NotImplementedError

    @learner_method("_compile_update")
    @hookspec(firstresult=True)
    def compile_update(
        self,
        learner: LearnerProtocol,
        step: Step,
        variables: Sequence[Variable],
        mode: str,
    ) -> Program:
        """Make the fastest program that the framework can of the core's step on a minibatch.

        Args:
            learner: the learner.
            step: `step(minibatch) -> {metric: scalar}` with `minibatch = {module_id: mapping of columns}`, such as
                `plugrad.batch.Rows`. It reads and assigns `variables`, and nothing else changes.
            variables: all of the learner's.
            mode: what the user asked for: `"none"`, `"forward_train"`, `"complete_update"` or `"auto"`.

        Returns:
            The program; it says in `mode` and `reason` what really runs and why.

        Example:
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
