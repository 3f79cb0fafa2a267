"""Hooks of a backend: tensors, variables, modules and the program of an update.

A backend is an object or a module with functions of these names, and of those in `BackendBuildSpec` and `GradientSpec`,
each marked `@plugrad.hookimpl`. An entry point declares it:

    [options.entry_points]
    plugrad.backends =
        mine = plugrad_mine:backend

Every hook takes the learner first and may leave out arguments that it does not need. Hooks marked *traced* run as
Python only while a program is traced, and not again until the next trace.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from plugrad.batch import MultiAgentBatch, env_steps_of
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
    StepContext,
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
    "StepContext",
]


class BackendSpec(HookCaller, Protocol):
    """Methods of the Learner that call the backend; those for gradients and optimizers are in `GradientSpec`."""

    @learner_method
    def _get_tensor_variable(self, value: Any, dtype: str | None = None, trainable: bool = False) -> Variable:
        """Make a variable of the framework on the learner's device.

        Variables hold everything that changes between updates without a new trace: learning rates, coefficients, slots
        of optimizers.

        Args:
            value: a number or an array; the variable keeps its shape.
            dtype: such as "float32"; None: float32 for floats, int32 for ints.
            trainable: whether gradients may be taken with respect to it.

        Returns:
            The variable, with `read`, `assign`, `snapshot` and `numpy` as `plugrad.ops.Variable` describes them.
            `assign` also takes what `snapshot` returned.

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
        """Make the framework's module around a network, for a spec without a `module_class`.

        The module holds the weights; `network` computes with them, over this backend's ops.

        Args:
            module_id: the module's id.
            module_spec: the complete spec, with spaces.
            network: see `build_network`.
            weights: `{parameter name: float32 array}`, drawn from the seed and equal on every backend, with the
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
        """Make an `RLModule` from a user's model of the framework, such as `Learner(module=...)`.

        Args:
            module_id: the module's id.
            module: a model that is called with the observations [B, ...] and returns the action distribution's inputs
                [B, inputs], `(inputs, values [B])`, or `{column: tensor}`.
            module_spec: the complete spec, with spaces.

        Returns:
            The module around the model.

        Raises:
            ConfigError: it is not a model of this framework.

        Example:
            @hookimpl
            def wrap_module(module, module_spec):
                return MyModelModule(module, module_spec)
        """
        return self._provide("wrap_module", module_id=module_id, module=module, module_spec=module_spec)

    @learner_method
    def _is_module_compatible_with_learner(self, module: RLModule) -> bool:
        """Whether the backend can train a module. Other modules are kept, without an optimizer.

        Args:
            module: one of the learner's modules.

        Returns:
            True if it can be trained.

        Example:
            @hookimpl
            def is_module_compatible_with_learner(module):
                return isinstance(module, mine.Module)
        """
        return self._provide("is_module_compatible_with_learner", module=module)

    @learner_method
    def get_parameters(self, module: RLModule) -> list[Any]:
        """List a module's trainable parameters.

        Args:
            module: a module that the backend can train.

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
        """List what a module keeps besides its trained parameters: statistics, counters, seeds, frozen parameters.

        Called when modules are built. Default: none. A failed update restores them, and `compile_update` gets them
        among its `variables`. Learners of a group make them equal after each update: floats become the mean over the
        learners, weighted by rows; all others become those of learner 0.

        Args:
            module: one that the backend can train.

        Returns:
            `{name in module.get_state(): variable}`. `read` returns what the module computes with, also in programs.

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
            batch: a (nested) dict of arrays or tensors, or a MultiAgentBatch. float64 becomes float32; int64 may become
                int32.

        Returns:
            The same with tensors. Keys may be in another order, as in the results of all hooks.

        Example:
            @hookimpl
            def convert_batch_type(batch):
                return tree_map(mine.from_numpy, batch)
        """
        if hasattr(batch, "policy_batches"):
            converted = self._convert_batch_type(batch.policy_batches)
            return MultiAgentBatch(converted, env_steps_of(batch))  # type: ignore[return-value]
        return self._provide("convert_batch_type", batch=batch)

    @learner_method
    @since(2)
    def _seeded_generators(self, seed: int) -> AbstractContextManager[Mapping[str, Any]]:
        """Seed the framework's own random generators while a module of a user's class is made.

        So its initial weights depend on the learner's seed and the module's id alone. The core does the same for
        Python's `random` and numpy's. Default: nothing more.

        Args:
            seed: from 0 to 2**31 - 1.

        Returns:
            A context manager that puts the generators back when it ends. It yields further arguments that the class
            of a model may name, such as flax's `rngs`.

        Example:
            @hookimpl
            def seeded_generators(seed):
                return mine.seeded(seed)  # yields {}
        """
        return self._provide("seeded_generators", seed=seed)

    @learner_method
    def _convert_to_numpy(self, tensors: Any) -> Any:
        """Convert tensors to numpy copies.

        Not called while a loss is differentiated or a program is traced: tensors may have no values there.

        Args:
            tensors: a tensor, or a (nested) dict, list or tuple of tensors.

        Returns:
            The same with arrays. Keys may be in another order, and a tuple may become a list.

        Example:
            @hookimpl
            def convert_to_numpy(tensors):
                return tree_map(mine.to_numpy, tensors)
        """
        return self._provide("convert_to_numpy", tensors=tensors)

    @learner_method
    @since(2)
    def _snapshot_variables(self, variables: Sequence[Variable]) -> Sequence[Any]:
        """Copy the current values of variables, which the learner assigns if an update fails.

        Called at the beginning of each update, for all variables of the learner. Default: `snapshot()` of each. Answer
        this hook if the framework can read many variables at once faster than one after another.

        Args:
            variables: variables of this backend.

        Returns:
            One value for each, in this order. `assign` must take it, and nothing may change it later.

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
        """Write a forward pass of a user's module as an ONNX model, with the framework's exporter.

        `Policy.export_onnx` calls this, and embeds the model in one that takes observations and returns actions.
        plugrad's networks need no exporter. Default: an error.

        Args:
            module: a module that the backend can train.
            forward: its forward pass, from columns to columns.
            columns: an example, `{column: tensor [2, ...]}`; an array of a state is `state_in/<name>`.
            opset: the version of ONNX's operators that the model must have.

        Returns:
            A serialised `onnx.ModelProto`. Its inputs and outputs have the names of the columns and any number of rows.

        Example:
            @hookimpl
            def export_onnx(module, forward, columns, opset):
                return mine.to_onnx(forward, columns, opset).SerializeToString()
        """
        return self._provide("export_onnx", module=module, forward=forward, columns=columns, opset=opset)

    @learner_method
    def _compile_update(self, step: Step, variables: Sequence[Variable], mode: str) -> Program:
        """Make the fastest program that the framework can from the core's step on a minibatch.

        Args:
            step: `step(minibatch) -> {metric: float32 scalar}` with `minibatch = {module_id: mapping of columns}`, such
                as `plugrad.batch.Rows`. It reads and assigns `variables`, and changes nothing else. Each call takes a
                gradient step, or traces one; all calls return metrics with the same names.
            variables: all variables of the learner that a step reads or assigns, each once: flat parameters, slots,
                learning rates, coefficients, target networks, buffers. Weights that no optimizer steps are not among
                them: when they are set, the core asks for a new program.
            mode: what the user asked for: `"none"`, `"forward_train"`, `"complete_update"` or `"auto"`. With `"none"` a
                framework that has eager autograd steps eagerly, so that a loss may read values, as in `float(loss)`.

        Returns:
            The program; its `mode` and `reason` say what actually runs and why. In every mode it computes the same as
            with `"none"`.

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
        """Combine the programs of many learners, of which this is the first, into one.

        Called for backends with `Capability.BATCHED_LEARNERS`, with `compile="auto"` or `"complete_update"`. The
        learners have equal settings except for seed, learning rates and coefficients, which are variables of their
        programs. They are not learners of a group, and have no optimizers of the framework. Default: the programs run
        one after another.

        Args:
            program: this learner's program, from `compile_update`.

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
