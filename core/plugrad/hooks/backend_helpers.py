"""Code that several backends share."""

import logging
import os
import stat
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from plugrad.batch import minibatch
from plugrad.errors import ConfigError, LossError, OptimizerError
from plugrad.hooks.backend_types import Condition, Program, Step
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.optimizers import Optimizer
from plugrad.types import ModuleBatches, ModuleID, ParamRef, Tensor

FunctionalCall = Callable[[Mapping[ParamRef, Tensor]], AbstractContextManager[None]]

MOST_WIDTHS = 8
"""How many sizes of minibatches are compiled for one set of columns. Others run uncompiled."""
WIDTHS_CHANGE = f"the size of the minibatches keeps changing, and at most {MOST_WIDTHS} sizes are compiled"
"""The reason for `learner.update_mode`."""
_log = logging.getLogger("plugrad")
_DTYPES = {"f": "float32", "i": "int32", "u": "int32", "b": "bool"}


def default_dtype(value: Any) -> str:
    """The dtype of a variable that is made without one: float32 for floats, int32 for ints, bool for booleans."""
    return _DTYPES[np.asarray(value).dtype.kind]


def program_folder(framework: str, *inner: str) -> Path:
    """Make the folder for compiled programs in the user's cache, one for each kind of processor.

    What is loaded from it runs as this user. So nobody else may be able to write to it or to replace it: see
    `why_not_closed`. The folders are made with mode 0700.

    Args:
        framework: the name in `~/.cache/plugrad/<framework>/<processor>`; `XDG_CACHE_HOME` replaces `~/.cache`.
        *inner: names of folders in it.

    Returns:
        The folder, without links.

    Raises:
        PermissionError: another user might write to it.
        OSError: it cannot be made.
        RuntimeError: the user has no home directory.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute()
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = cache.resolve()  # a link of the user's is followed, one below it is not
    own = ("plugrad", framework, _processor(), *inner)
    for name in own:
        folder /= name
        folder.mkdir(mode=0o700, exist_ok=True)
    if (reason := why_not_closed(folder, made=len(own))) is not None:
        raise PermissionError(
            f"{reason}, and what is loaded from there runs as you: remove it, or set XDG_CACHE_HOME to a folder of "
            "your own"
        )
    return folder


def program_folder_or_none(framework: str, *inner: str) -> Path | None:
    """As `program_folder`; None, and one line in the log, where no compiled programs can be kept or trusted."""
    try:
        folder = program_folder(framework, *inner)
    except PermissionError as error:
        _log.warning("%s: compiled updates are neither kept on disk nor loaded: %s", framework, error)
    except (OSError, RuntimeError) as error:  # read-only, full, or nobody's home
        _log.info("%s: compiled updates are not kept on disk: %s", framework, error)
    else:
        return folder if os.access(folder, os.W_OK) else None
    return None


def why_not_closed(folder: Path, *, made: int = 1) -> str | None:
    """The reason why another user might write to a folder or replace it, or None.

    Args:
        folder: an absolute path without links above the last `made` names.
        made: how many of its last names must be directories of this user to which nobody else may write. Those above
            must be of this user or of root, and where others may write, they may rename only what is theirs (the sticky
            bit, as in /tmp). A folder above that the user's own group may write to is the user's decision.

    Returns:
        The reason, as the beginning of a sentence.
    """
    for number, path in enumerate((folder, *folder.parents)):
        found = os.lstat(path)
        mode, user = stat.S_IMODE(found.st_mode), os.geteuid()
        if not stat.S_ISDIR(found.st_mode):
            return f"{path} is a link or no directory"
        if number < made:
            if found.st_uid != user:
                return f"{path} belongs to user {found.st_uid}, not to you ({user})"
            if mode & 0o022:
                return f"others may write to {path} (mode {mode:04o})"
        elif found.st_uid not in (user, 0):
            return f"{path} belongs to user {found.st_uid}, neither to you ({user}) nor to root"
        elif not mode & stat.S_ISVTX and (mode & 0o002 or (mode & 0o020 and found.st_gid != os.getegid())):
            return f"others may write to {path} (mode {mode:04o})"
    return None


def _processor() -> str:
    """A name for machines with the same processor: code compiled for one may crash on another."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    return f"{zlib.crc32(repr([each for each in lines[:40] if each.startswith('flags')]).encode()):x}"


def where_installed(package: str, requirement: str) -> Condition:
    """The condition of a capability that a backend has only if a package is installed.

    Args:
        package: the name to import.
        requirement: what to install, such as "plugrad[flax]".

    Returns:
        The condition.
    """
    return lambda ops, config: (
        find_spec(package) is not None or f'{package} is missing: pip install "{requirement}"'
    )


def converted(tree: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert the leaves of a tree of mappings, lists and tuples.

    Args:
        tree: such as a batch or the outputs of a module.
        convert: converts one leaf.

    Returns:
        The converted tree, of dicts and lists.
    """
    if isinstance(tree, Mapping):
        return {key: converted(value, convert) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [converted(value, convert) for value in tree]
    return convert(tree)


class EagerLoop(Program):
    """A loop in Python over eager steps.

    Args:
        step: the core's step.
        take: `take(column, rows)` returns rows of a column.
        reason: see `Program`.
    """

    def __init__(self, step: Step, take: Callable[[Tensor, Tensor], Tensor], reason: str) -> None:
        super().__init__("none", reason)
        self._step, self._take = step, take

    def run(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int
    ) -> Mapping[str, Tensor]:
        """See `Program.run`."""
        rows = [{module_id: each[n] for module_id, each in indices.items()} for n in range(num_steps)]
        metrics = [self._step(minibatch(columns, each, self._take)) for each in rows]
        return {name: np.mean([each[name] for each in metrics], dtype=np.float32) for name in metrics[0]}


def find_param_ref(learner: LearnerProtocol, param: Any) -> ParamRef:
    """Answer `get_param_ref` for a backend whose modules have `named_weights() -> {name: parameter}`.

    Args:
        learner: the learner whose modules are searched.
        param: one of their parameters, the same object.

    Returns:
        `<module id>/<name>`.

    Raises:
        OptimizerError: no module of the learner has it.
    """
    for module_id in learner.trainable_module_ids:
        for name, own in _named_weights(learner, module_id):
            if own is param:
                return f"{module_id}/{name}"
    raise OptimizerError(f"a parameter of shape {tuple(param.shape)} belongs to no module of this learner")


def functional_call_by_ref(
    learner: LearnerProtocol, refs: Sequence[ParamRef], params: Sequence[Any]
) -> FunctionalCall:
    """`RLModule.functional_call` of all modules at once, with parameter names across modules.

    Args:
        learner: a learner whose trainable modules have `named_weights() -> {name: parameter}`.
        refs: names of the parameters to replace.
        params: the parameters themselves; a parameter that modules share is replaced in each of them.

    Returns:
        `functional_call({param ref: tensor})`, a context manager.
    """
    known = {id(param): ref for param, ref in zip(params, refs, strict=True)}
    places: dict[ModuleID, dict[str, ParamRef]] = {}  # only of modules that have any: others may be removed
    for module_id in learner.trainable_module_ids:
        for name, own in _named_weights(learner, module_id):
            if id(own) in known:
                places.setdefault(module_id, {})[name] = known[id(own)]

    @contextmanager
    def functional_call(tensors: Mapping[ParamRef, Tensor]) -> Iterator[None]:
        with ExitStack() as stack:
            for module_id, names in places.items():
                own = {name: tensors[ref] for name, ref in names.items()}
                stack.enter_context(learner.module[module_id].functional_call(own))
            yield

    return functional_call


def _named_weights(learner: LearnerProtocol, module_id: ModuleID) -> Iterable[tuple[str, Any]]:
    module: Any = learner.module[module_id]
    named: Mapping[str, Any] = module.named_weights()
    return named.items()


def check_params(params: Sequence[Any], param_class: type[Any], words: str) -> None:
    """Check the argument `params` of `register_optimizer`.

    Args:
        params: must be a non-empty list of parameters.
        param_class: the framework's class of parameters.
        words: a description of the elements, for the error.

    Raises:
        OptimizerError: it is anything else.
    """
    is_list = isinstance(params, list) and all(isinstance(param, param_class) for param in params)
    if not is_list or not params:
        raise OptimizerError(
            f"params must be a list of {words}, found {type(params).__name__}: {params!r:.80}"
        )


def why_forwards_are_not_compiled(module_ids: Collection[ModuleID], called: Collection[ModuleID]) -> str:
    """Why `compile="forward_train"` compiles nothing.

    A module that was not called may have had no rows, so one that was called suffices.

    Args:
        module_ids: of an update.
        called: those of which `_forward_train`, which is what is compiled, was called.

    Returns:
        The reason; "" if one was called.
    """
    if called:
        return ""
    names = ", ".join(map(repr, module_ids))
    return f"forward_train of {names} does not call super(), and _forward_train is compiled"


def check_float32(refs: Sequence[ParamRef], params: Sequence[Any]) -> None:
    """Check that parameters can be parts of one flat float32 vector.

    Args:
        refs: names of the parameters.
        params: the parameters, with a `dtype`.

    Raises:
        OptimizerError: one has another dtype.
    """
    for ref, param in zip(refs, params, strict=True):
        dtype = getattr(param.dtype, "name", str(param.dtype).rpartition(".")[2])
        if dtype != "float32":
            raise OptimizerError(
                f"parameter {ref!r} is {dtype}: trained parameters are float32. Make the model in float32, or "
                "freeze the parameter"
            )


def no_gradient_error(losses: Collection[ModuleID]) -> LossError:
    """Make the error for losses that depend on no trained parameter: an update would train nothing.

    Args:
        losses: ids of their modules.

    Returns:
        The error, to be raised.
    """
    modules = ", ".join(map(repr, losses))
    return LossError(
        f"no gradient reaches a parameter from the loss of {modules}: this update would train nothing. Look for "
        "no_grad, detach or stop_gradient in the model's forward pass and in the loss",
        module_id=next(iter(losses), None),
        expected="a loss that depends on trained parameters",
        found="one that depends on none",
    )


def check_vectors(
    learner: LearnerProtocol, module_id: ModuleID, vectors: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Check the argument `vectors` of `jvp` and `hvp`.

    Args:
        learner: a learner that has the module.
        module_id: the module.
        vectors: must be `{parameter name: array in the parameter's shape}`.

    Returns:
        The same as tensors.

    Raises:
        ConfigError: it is anything else.
    """
    module = learner.module[module_id]
    names = {
        learner.get_param_ref(each).removeprefix(f"{module_id}/") for each in learner.get_parameters(module)
    }
    shapes = {name: weight.shape for name, weight in module.get_state().items() if name in names}
    for name, vector in vectors.items():
        if name not in shapes or np.shape(vector) != shapes[name]:
            found = f"shape {list(np.shape(vector))}" if name in shapes else "no such parameter"
            expected = f"shape {list(shapes[name])}" if name in shapes else ", ".join(shapes)
            raise ConfigError(
                f"vectors of module {module_id!r}, {name!r}: {found}; expected {expected}",
                module_id=module_id,
            )
    if not vectors:
        raise ConfigError(f"vectors of module {module_id!r} are empty: give one of {', '.join(shapes)}")
    return dict(
        learner._convert_batch_type({name: np.asarray(each, np.float32) for name, each in vectors.items()})
    )


def check_scalar(learner: LearnerProtocol, module_id: ModuleID, value: Any) -> Tensor:
    """Check what the function of `jvp` and `hvp` gives.

    Args:
        learner: the learner.
        module_id: the module whose scalar it must be.
        value: what it gave.

    Returns:
        The scalar.

    Raises:
        LossError: it is no scalar tensor.
    """
    is_tensor = type(value).__module__ != "builtins"
    shape = list(learner.ops.shape(value)) if is_tensor else None
    if shape != []:
        raise LossError(
            f"the function of module {module_id!r} gave {f'shape {shape}' if is_tensor else repr(value)[:80]}; it must "
            "be a scalar tensor: take its mean",
            module_id=module_id,
            expected=[],
            found=shape,
        )
    return value


def check_is_optimizer(optimizer: Any, framework_class: str | None = None) -> None:
    """Check that an optimizer is plugrad's, after the backend found that it is not the framework's.

    Args:
        optimizer: what was registered.
        framework_class: the framework's optimizer class, for the error; None: the backend does not take any.

    Raises:
        OptimizerError: it is not.
    """
    if not isinstance(optimizer, Optimizer):
        others = f" and no {framework_class}" if framework_class else ""
        raise OptimizerError(f"{type(optimizer).__name__} is no optimizer of plugrad.optimizers{others}")


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or "no message"."""
    return (str(error).strip() or "no message").splitlines()[0]


def calling_lines() -> list[tuple[str, int]]:
    """`(file, line)` of the frames around the caller's, innermost first, without the caller's own frame."""
    lines: list[tuple[str, int]] = []
    frame = sys._getframe(1).f_back
    while frame is not None:
        lines.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return lines
