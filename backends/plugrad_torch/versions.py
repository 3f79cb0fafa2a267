"""The names of torch that plugrad uses and that are not public, and what is done in a version without them.

Imports no torch: `plugrad doctor` runs this file by itself. The dicts of a `torch.nn.Module` (`_parameters` and
`_buffers`) and a tensor's `_version`, which torch's own notes name, are used where they are needed.
"""

from typing import Any

from plugrad.hooks.private_names import MissingName, PrivateName, lacking, lacking_in_files

_TRACE = "updates are not traced, so none is compiled"
_COMPILE = "updates are not compiled"
_LOOP = "each step is a compiled call, in place of the whole update"
_RECORD = 'steps of compile="auto" are not recorded, and run eagerly'
_TYPES = "_C/__init__.pyi"
_FUNCTIONS = "_C/_VariableFunctions.pyi"

MAKE_FX = PrivateName("torch.fx.experimental.proxy_tensor", "make_fx", _TRACE)
COMPILE = PrivateName("torch._inductor", "compile", _COMPILE)
LIST_OPTIONS = PrivateName(
    "torch._inductor", "list_options", "inductor compiles with its own options, slower"
)
CPP_COMPILER = PrivateName("torch._inductor.config", "cpp.cxx", "an error of inductor names no C++ compiler")
NO_CPP_COMPILER = PrivateName(
    "torch._inductor.exc",
    "InvalidCxxCompiler",
    "where no C++ compiler is installed, inductor's words are shown",
)
WHILE_LOOP = PrivateName("torch._higher_order_ops.while_loop", "while_loop_op", _LOOP)
FAKE_TENSORS = PrivateName("torch._subclasses.fake_tensor", "FakeTensorMode", _LOOP)
_SHAPES = "torch.fx.experimental.symbolic_shapes"
DIM_DYNAMIC = PrivateName(_SHAPES, "DimDynamic", _LOOP)
SHAPE_ENV = PrivateName(_SHAPES, "ShapeEnv", _LOOP)
SYMBOLIC_CONTEXT = PrivateName(_SHAPES, "StatelessSymbolicContext", _LOOP)

DISPATCH_MODE = PrivateName("torch.utils._python_dispatch", "TorchDispatchMode", _RECORD)
TREE_FLATTEN = PrivateName("torch.utils._pytree", "tree_flatten", _RECORD)
TREE_LEAVES = PrivateName("torch.utils._pytree", "tree_leaves", _RECORD)
NO_TORCH_FUNCTION = PrivateName("torch._C", "_disabled_torch_function_impl", _RECORD)
WRAPPER = PrivateName("torch", "Tensor._make_wrapper_subclass", _RECORD, _TYPES)
TRACE_GRAPH = PrivateName("torch.jit", "_get_trace_graph", _RECORD)
FUNCTION_OF_GRAPH = PrivateName("torch._C", "_create_function_from_graph", _RECORD)
OPTIMIZED_EXECUTION = PrivateName("torch.jit", "optimized_execution", _RECORD)

FUSED_ADAM = PrivateName("torch", "_fused_adam_", "Adam steps by its formula, slower", _FUNCTIONS)
FOREACH_COPY = PrivateName("torch", "_foreach_copy_", "variables are assigned one by one", _FUNCTIONS)

CURRENT_MODE = PrivateName(
    "torch.utils._python_dispatch",
    "_get_current_dispatch_mode",
    "after `plugrad parity` or a trace, a compiled forward pass may stay eager",
)
COMPILER_FAILED = PrivateName(
    "torch._dynamo.exc", "BackendCompilerFailed", "after any error a compiled forward pass runs eagerly"
)

WATCHING = (DISPATCH_MODE, TREE_LEAVES)
"""Without them the operations of a step are not shown."""
RECORDING = (DISPATCH_MODE, TREE_FLATTEN, TREE_LEAVES, NO_TORCH_FUNCTION, WRAPPER)
INTERPRETING = (TRACE_GRAPH, FUNCTION_OF_GRAPH, OPTIMIZED_EXECUTION)
EVERY_STEP = (FUSED_ADAM, FOREACH_COPY)
"""Without them a step is slower in every mode."""
NAMES = (
    *(MAKE_FX, COMPILE, LIST_OPTIONS, CPP_COMPILER, NO_CPP_COMPILER),
    *(WHILE_LOOP, FAKE_TENSORS, DIM_DYNAMIC, SHAPE_ENV, SYMBOLIC_CONTEXT),
    *RECORDING,
    *INTERPRETING,
    *EVERY_STEP,
    *(CURRENT_MODE, COMPILER_FAILED),
)


def what_is_lost(version: str) -> str:
    """What the installed torch goes without, by its files.

    Args:
        version: of torch; the files say it all.

    Returns:
        In words; "" if nothing.
    """
    return lacking_in_files(NAMES)


def with_what_slows(reason: str) -> str:
    """The reason of an update mode, with what each of its steps goes without in this torch."""
    return "; ".join(filter(None, (reason, lacking(EVERY_STEP))))


def schema_of(operation: Any) -> Any:
    """The schema of an operation of torch.

    Raises:
        MissingName: it has none, so that steps cannot be recorded.
    """
    try:
        return operation._schema
    except AttributeError:
        raise MissingName(f"operations of this torch have no _schema: {_RECORD}") from None


def storage_of(tensor: Any) -> int:
    """A number of the memory behind a tensor and its views; by its address where torch keeps no number."""
    storage = tensor.untyped_storage()
    number: int = storage._cdata if hasattr(storage, "_cdata") else storage.data_ptr()
    return number
