"""The errors that plugrad raises.

Each class derives from `PlugradError` and from the built-in error that fits, so that `except ValueError` works too. An
error can be pickled, with its facts, and raised again in another process.
"""

import difflib
from collections.abc import Iterable
from typing import Any


class PlugradError(Exception):
    """The base of all errors of plugrad.

    Args:
        message: the whole text that the user reads.
        **facts: the values in the text, such as `module_id=` and `expected=`, for programs.

    Attributes:
        facts: `**facts` as a dict.
    """

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts

    def __str__(self) -> str:
        # KeyError, the second base of some errors, would show the message's repr, with quotes and escapes.
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.facts)


def _rebuild(cls: type[PlugradError], message: str, facts: dict[str, Any]) -> PlugradError:
    return cls(message, **facts)


class ConfigError(PlugradError, ValueError):
    """A setting has an unknown name or a value that cannot work."""


class EnvContractError(PlugradError, ValueError):
    """An environment breaks its API. Facts: `env`, `index`, `expected`, `found`; some also `agent` and `step`."""


class EnvWorkerError(PlugradError, RuntimeError):
    """A worker process of environments died or did not answer in time. Facts: `env`, `index` where it is known."""


class NotBuiltError(PlugradError, ValueError):
    """A Learner was used before `build()`."""


class NotUndoneError(PlugradError, RuntimeError):
    """A learner is used after an update failed with `undo=False`, and before `restore_from_path`."""


class UnfinishedStepError(PlugradError, RuntimeError):
    """What is asked for needs `optim_step` before it, or `forward_backward`. Fact: `calls` that are not applied yet."""


class BatchError(PlugradError, ValueError):
    """A batch cannot be trained on. Facts: `module_id`, `column`, `expected`, `found`."""


class MissingColumnError(BatchError, KeyError):
    """The forward pass or the loss reads a column that the batch does not have. Facts: those of `BatchError`."""


class UnknownModuleError(BatchError, KeyError):
    """A module id is not among the learner's modules. Facts: `module_id`, `known`."""


class OptimizerError(PlugradError, ValueError):
    """An optimizer, or the parameters given with it, cannot be registered."""


class UnknownParameterError(OptimizerError, KeyError):
    """A gradient has a name that no optimizer's parameter has. Facts: `unknown`, `known`."""


class LossError(PlugradError, ValueError):
    """A loss or a metric has a shape or a dtype that cannot be averaged."""


class PortabilityError(PlugradError, TypeError):
    """Code does not run on every backend; the strict backend raises this. Facts: `file`, `line`, `instead`."""


class ResultError(PlugradError, ValueError):
    """`compile_results` returned something that `update` cannot return."""


class NonFiniteError(PlugradError, FloatingPointError):
    """A loss or a gradient is NaN or infinite; the whole update was undone."""


class NonFiniteBatchError(BatchError, NonFiniteError):
    """A column that the loss reads has NaN or infinite values. Facts: those of `BatchError`."""


class CheckpointError(PlugradError, OSError):
    """A checkpoint cannot be written or read."""


class RestoreMismatchError(PlugradError, ValueError):
    """A state does not fit its target; nothing was changed. Facts: `missing`, `unexpected`, `mismatched`."""


class SpaceMismatchError(ConfigError, BatchError, RestoreMismatchError):
    """Rows that were written for one space do not fit another. Facts: `field`, `expected`, `found`."""


class CheckpointCorruptError(CheckpointError):
    """A file of a checkpoint is missing, damaged, or differs from the manifest."""


class CheckpointUnsafeError(CheckpointError):
    """A checkpoint contains something unsafe: a link, a device, a path, an oversized header."""


class CheckpointLockedError(CheckpointError):
    """Another process is writing to this checkpoint directory."""


class CheckpointVersionError(CheckpointError):
    """A checkpoint has a newer format than this version of plugrad reads."""


class LearnerGroupDeadError(PlugradError, RuntimeError):
    """No learner of a group is alive."""


class LearnerTimeoutError(PlugradError, TimeoutError):
    """A learner did not answer in time. Facts: `rank`, `phase`."""


class CollectiveError(PlugradError, RuntimeError):
    """Learners could not exchange their gradients; nothing was applied. Fact: `rank` of the missing learner."""


class QueueFullError(PlugradError, RuntimeError):
    """The queue of a group is full, and the setting is `on_full="raise"`."""


class PluginError(PlugradError, RuntimeError):
    """A plugin cannot be used: it fails to import, or its hooks do not match their specifications."""


class PluginConflictError(PlugradError, ValueError):
    """Two plugins implement a hook that takes one, or two distributions have entry points with the same name."""


class BackendNotFoundError(PlugradError, LookupError):
    """No installed backend has this name, or its framework is missing."""


class MissingFrameworkError(BackendNotFoundError):
    """A plugin is installed, but the framework that it needs is not. Fact: `requires`."""


class AlgorithmNotFoundError(PlugradError, LookupError):
    """No installed algorithm has this name."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest a known name for a misspelt one.

    Args:
        name: the unknown name.
        known: the known names.

    Returns:
        A text such as ` Did you mean 'torch'?`; empty if no known name is close.
    """
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
