"""Hooks of a backend: tensors, variables, modules and the program of an update.

A backend is an object or a module with functions of these names, and of those in `BackendBuildSpec` and `GradientSpec`,
each marked `@plugrad.hookimpl`. An entry point names it:

    [options.entry_points]
    plugrad.backends =
        mine = plugrad_mine:backend

Every hook takes the learner first and may leave out arguments that it does not need. Hooks marked *traced* run as
plain Python once, while a program is traced, and then never again until the next trace.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from plugrad.contract import since
from plugrad.hooks.backend_types import (
    BackendInfo,
    BatchedProgram,
    Capability,
    Forward,
    Operation,
    Program,
    ProgramCall,
    Shape,
    Step,
)
from plugrad.hooks.hook_caller import HookCaller
from plugrad.hooks.markers import learner_method
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.ops import Variable
from plugrad.rl_module import RLModule
from plugrad.types import Array, ModuleID, Tensor

__all__ = [
    "BackendInfo",
    "BackendSpec",
    "BatchedProgram",
    "Capability",
    "Forward",
    "Operation",
    "Program",
    "ProgramCall",
    "Shape",
    "Step",
]


class BackendSpec(HookCaller, Protocol):
    """Methods of the Learner that ask the backend; those of its gradients and optimizers are in `GradientSpec`."""

    @learner_method
    def _get_tensor_variable(self, value: Any, dtype: str | None = None, trainable: bool = False) -> Variable:
        """Make a variable of the framework on the learner's device.

        Learning rates, coefficients, slots of optimizers: everything that changes between updates without a new trace.

        Args:
            value: a number or an array; the variable keeps its shape.
            dtype: such as "float32"; None: float32 for floats, int32 for ints.
            trainable: whether gradients may be taken by it.

        Returns:
            The variable, with `read`, `assign`, `snapshot` and `numpy` as `plugrad.ops.Variable` describes them.
            `assign` also takes what `snapshot` gave.

        Example:
            @hookimpl
            def get_tensor_variable(value, dtype):
                return MyVariable(value, dtype)
        """
        return self._provide("get_tensor_variable", value=value, dtype=dtype, trainable=trainable)

    @learner_method
    def _build_module(
        self,
        *,
        module_id: ModuleID,
        module_spec: RLModuleSpec,
        network: Network,
        weights: Mapping[str, Array],
    ) -> RLModule:
        """Make the framework's module around a network, for a spec that names no `module_class`.

        The module holds the weights; `network` computes with them, over this backend's ops.

        Args:
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
        return self._provide(
            "build_module", module_id=module_id, module_spec=module_spec, network=network, weights=weights
        )

    @learner_method
    def _wrap_module(self, *, module_id: ModuleID, module: Any, module_spec: RLModuleSpec) -> RLModule:
        """Make an `RLModule` of a user's model of the framework, such as one given as `Learner(module=...)`.

        Args:
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
        return self._provide("wrap_module", module_id=module_id, module=module, module_spec=module_spec)

    @learner_method
    def _is_module_compatible_with_learner(self, module: RLModule) -> bool:
        """Whether the backend can train a module. Others live beside the trained ones, without an optimizer.

        Args:
            module: one of its modules.

        Returns:
            True if it can be trained.

        Example:
            @hookimpl
            def is_module_compatible_with_learner(module):
                return isinstance(module, mine.Module)
        """
        return bool(self._provide("is_module_compatible_with_learner", module=module))

    @learner_method
    def get_parameters(self, module: RLModule) -> list[Any]:
        """List a module's trainable parameters.

        Args:
            module: one that the backend can train.

        Returns:
            The framework's own objects, in the module's order.

        Example:
            @hookimpl
            def get_parameters(module):
                return list(module.parameters())
        """
        return self._provide("get_parameters", module=module)

    @learner_method
    def _get_buffers(self, module: RLModule) -> Mapping[str, Variable]:
        """List what a module keeps beside its trained parameters: statistics, counters, seeds, frozen parameters.

        Asked when modules are built. Default: none. An update that fails puts them back, and `compile_update` finds
        them among its `variables`. Learners of a group make them equal after each update: floats become the mean over
        the learners, weighted by rows; all else becomes that of learner 0.

        Args:
            module: one that the backend can train.

        Returns:
            `{name in module.get_state(): variable}`. `read` gives what the module computes with, in programs too.

        Example:
            @hookimpl
            def get_buffers(module):
                return {name: MyVariable.around(each) for name, each in module.buffers()}
        """
        return self._provide("get_buffers", module=module)

    @learner_method
    def _convert_batch_type(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Convert numpy arrays to tensors on the learner's device.

        Args:
            batch: a (nested) dict of arrays or tensors. float64 becomes float32; int64 may become int32.

        Returns:
            The same with tensors. As in all that hooks give, keys may come in another order.

        Example:
            @hookimpl
            def convert_batch_type(batch):
                return tree_map(mine.from_numpy, batch)
        """
        return self._provide("convert_batch_type", batch=batch)

    @learner_method
    def _convert_to_numpy(self, tensors: Any) -> Any:
        """Convert tensors to numpy copies. It is the only way back.

        Not asked while a loss is differentiated or a program traced: tensors may have no values there.

        Args:
            tensors: a tensor, or a (nested) dict, list or tuple of tensors.

        Returns:
            The same with arrays. Keys may come in another order, and a tuple as a list.

        Example:
            @hookimpl
            def convert_to_numpy(tensors):
                return tree_map(mine.to_numpy, tensors)
        """
        return self._provide("convert_to_numpy", tensors=tensors)

    @learner_method
    @since(2)
    def _snapshot_variables(self, variables: Sequence[Variable]) -> Sequence[Any]:
        """Take the present values of variables, which the learner assigns if an update fails.

        Asked at the beginning of each update, for all variables of the learner. Default: what `snapshot()` of each
        returns. A framework that reads many variables at once in less time than one after another answers it.

        Args:
            variables: of this backend.

        Returns:
            One value for each, in this order, that nothing changes later and `assign` takes.

        Example:
            @hookimpl
            def snapshot_variables(variables):
                return mine.read_all(variables)
        """
        return self._provide("snapshot_variables", variables=variables)

    @learner_method
    def _export_onnx(
        self, *, module: RLModule, forward: Forward, columns: Mapping[str, Tensor], opset: int
    ) -> bytes:
        """Write a forward pass of a user's module as an ONNX model, by the framework's exporter.

        `Policy.export_onnx` asks, and puts the model into one that takes observations and gives actions. Networks of
        plugrad need no exporter. Default: an error.

        Args:
            module: one that the backend can train.
            forward: its forward pass, of columns and to columns.
            columns: an example, `{column: tensor [2, ...]}`; an array of a state is `state_in/<name>`.
            opset: the version of ONNX's operators that the model must have.

        Returns:
            A serialised `onnx.ModelProto`. Its inputs and outputs have the names of the columns, and take any number of
            rows.

        Example:
            @hookimpl
            def export_onnx(module, forward, columns, opset):
                return mine.to_onnx(forward, columns, opset).SerializeToString()
        """
        return self._provide("export_onnx", module=module, forward=forward, columns=columns, opset=opset)

    @learner_method
    def _compile_update(self, step: Step, variables: Sequence[Variable], mode: str) -> Program:
        """Make the fastest program that the framework can of the core's step on a minibatch.

        Args:
            step: `step(minibatch) -> {metric: float32 scalar}` with `minibatch = {module_id: mapping of columns}`, such
                as `plugrad.batch.Rows`. It reads and assigns `variables`, and nothing else changes. Each call takes a
                gradient step, or traces one; all calls give metrics of the same names.
            variables: all of the learner's that a step reads or assigns, each once: flat parameters, slots, learning
                rates, coefficients, target networks, buffers. Weights that no optimizer steps are not among them: when
                they are set, the core asks for a new program.
            mode: what the user asked for: `"none"`, `"forward_train"`, `"complete_update"` or `"auto"`. With `"none"` a
                framework that has eager autograd steps eagerly, so that a loss may ask for values, as by `float(loss)`.

        Returns:
            The program; it says in `mode` and `reason` what really runs and why. Whatever it was asked for, it computes
            what `"none"` computes.

        Example:
            class Loop(Program):
                def run(self, columns, indices, num_steps):
                    batches = [
                        {m: Rows(m, columns[m], partial(mine.take, indices=rows[n])) for m, rows in indices.items()}
                        for n in range(num_steps)
                    ]
                    return means([self.step(batch) for batch in batches])


            @hookimpl
            def compile_update(step, mode):
                loop = Loop("none", "a loop in Python")
                loop.step = step
                return loop
        """
        return self._provide("compile_update", step=step, variables=variables, mode=mode)

    @learner_method
    @since(2)
    def _batch_program(self, program: Program) -> BatchedProgram:
        """Make one program of the programs of many learners, of which this is the first.

        Asked of backends with `Capability.BATCHED_LEARNERS`, with `compile="auto"` or `"complete_update"`. The learners
        have equal settings but for seed, learning rates and coefficients, which are variables of their programs; no
        learner of a group and no optimizer of the framework is among them. Default: the programs run one after another.

        Args:
            program: of `compile_update`, for this learner.

        Returns:
            The batched program, for any number of learners.

        Example:
            class Batched(BatchedProgram):
                def run(self, calls, num_steps):
                    columns = mine.stack([each.columns for each in calls])
                    indices = mine.stack([each.indices for each in calls])
                    values = mine.stack([each.program.values() for each in calls])
                    changed, metrics = mine.vmap(self.loop)(values, columns, indices, num_steps)
                    for n, each in enumerate(calls):
                        each.program.assign(changed[n])
                    return metrics


            @hookimpl
            def batch_program(program):
                batched = Batched()
                batched.loop = program.loop
                return batched
        """
        return self._provide("batch_program", program=program)
