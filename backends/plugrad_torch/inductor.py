"""Inductor, torch's compiler: its options, and the reason where it did not compile."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from plugrad.hooks.backend_helpers import first_line, program_folder_or_none
from plugrad.hooks.private_names import MissingName
from plugrad_torch import versions

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
        return versions.COMPILE.get()(graph, list(inputs), options=options_for(device))
    except MissingName as error:
        raise NotCompiled(str(error)) from error
    except Exception as error:
        raise NotCompiled(why_not(error)) from error


def use_folder() -> None:
    """Set the folder of inductor's cache, unless the user did.

    Inductor's default is a name in the folder for temporary files that anybody can take before. So where the user's
    cache cannot be used, this process has a folder that is removed when it ends. A folder that torch has set by its
    default is replaced, too.
    """
    named = os.environ.get(_FOLDER)
    if named is not None and not _is_default(Path(named)):
        return
    folder = program_folder_or_none("torch")
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="plugrad-torch-"))  # mode 0700, under a new name
        atexit.register(_remove_own, folder, os.getpid())
    os.environ[_FOLDER] = str(folder)


def _is_default(folder: Path) -> bool:
    """Whether torch named it, as soon as something asked for inductor's cache."""
    return folder.name.startswith("torchinductor_") and folder.parent == Path(tempfile.gettempdir())


def _remove_own(folder: Path, process: int) -> None:
    if os.getpid() == process:  # not in a fork
        shutil.rmtree(folder, ignore_errors=True)


def options_for(device: str) -> dict[str, Any]:
    """The options for a type of device, without those that this version of torch does not have."""
    wanted = ON_CPU if device == "cpu" else {}
    list_options = versions.LIST_OPTIONS.find()
    known = list_options() if wanted and list_options else ()
    return {name: value for name, value in wanted.items() if name in known}


def why_not(error: BaseException) -> str:
    """Why inductor did not compile: what this machine lacks, or else what inductor says."""
    not_found = versions.NO_CPP_COMPILER.find()  # brings in half of inductor
    if not_found and any(isinstance(each, not_found) for each in _causes(error)):
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
    configured = versions.CPP_COMPILER.find()
    names = configured if isinstance(configured, list | tuple) else [configured]
    return ", ".join(str(name) for name in names if name)
