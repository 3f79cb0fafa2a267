"""Inductor, torch's compiler: its options, and the reason where it did not compile."""

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from plugrad.hooks.backend_helpers import first_line, program_folder

log = logging.getLogger("plugrad")
_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
ON_CPU = {
    "cpp_wrapper": True,
    "cpp_cache_precompile_headers": False,
    "cpp.use_decompose_tanh": True,
    "cpp.enable_floating_point_contract_flag": "fast",
    "unsafe_marked_cacheable_functions": {"torch.ops.higher_order.while_loop": torch.__version__},
}
"""A step is some 90 small kernels, and calling them from C++ spares a fifth of its time. Headers that are compiled
beforehand cost more than they save, since there is one program. tanh by exponentials and fused multiply-add spare
another fifth of a small step, and change the last digit. Without the last option no program with a loop is
served by inductor's cache in a new process; the loop has no effects and its body is part of the cache's key."""


class NotCompiled(Exception):
    """Inductor did not compile a graph that torch had traced; the message says why."""


def compile_graph(graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor], device: str) -> Any:
    """Compile a graph with inductor.

    Args:
        graph: what to compile.
        inputs: examples of its arguments.
        device: the type of device that it runs on.

    Returns:
        A function of tensors.

    Raises:
        NotCompiled: inductor refuses.
    """
    try:
        return torch._inductor.compile(graph, list(inputs), options=options_for(device))
    except Exception as error:
        raise NotCompiled(why_not(error)) from error


def use_folder() -> None:
    """Set the folder of inductor's cache, if none is set; inductor's default is a folder for temporary files."""
    if _FOLDER not in os.environ:
        try:
            folder = program_folder("torch")
            if os.access(folder, os.W_OK):
                os.environ[_FOLDER] = str(folder)
        except (OSError, RuntimeError) as error:  # read-only, full, or nobody's home
            log.info("torch: compiled updates are kept in inductor's own folder: %s", error)


def options_for(device: str) -> dict[str, Any]:
    """The options for a type of device, without those that this version of torch does not have."""
    wanted = ON_CPU if device == "cpu" else {}
    known = torch._inductor.list_options() if wanted else ()
    return {name: value for name, value in wanted.items() if name in known}


def why_not(error: BaseException) -> str:
    """Why inductor did not compile: what this machine lacks, or else what inductor says."""
    from torch._inductor.exc import InvalidCxxCompiler  # brings in half of inductor

    if any(isinstance(each, InvalidCxxCompiler) for each in _causes(error)):
        return f'no C++ compiler was found (inductor looked for {_compiler()}): install g++ or set compile="none"'
    return f"torch's inductor does not compile it here: {type(error).__name__}: {first_line(error)}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and those that it was raised from."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = getattr(cause, "inner_exception", None) or cause.__cause__ or cause.__context__


def _compiler() -> str:
    """What inductor looks for: the environment variable CXX, or g++ (clang++ on macOS)."""
    configured = torch._inductor.config.cpp.cxx
    names = configured if isinstance(configured, list | tuple) else [configured]
    return ", ".join(str(name) for name in names if name)
