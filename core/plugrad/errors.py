"""Every error that plugrad raises on purpose.

Each class derives from `PlugradError` and from the builtin that fits, so that `except ValueError` keeps working, and
pickles with its facts, so that it crosses process borders unchanged.
"""

import difflib
from collections.abc import Iterable
from typing import Any


class PlugradError(Exception):
    """Base of all errors of plugrad.

    Args:
        message: the whole sentence that the user reads.
        facts: what the sentence was made of (`module_id=...`, `expected=...`); kept in `error.facts` for programs.
    """

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts

    def __str__(self) -> str:
        # KeyError, one of our second parents, would show the repr of the message: quotes and escapes.
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.facts)


def _rebuild(cls: type[PlugradError], message: str, facts: dict[str, Any]) -> PlugradError:
    return cls(message, **facts)


class ConfigError(PlugradError, ValueError):
    """A setting has an unknown name or a value that cannot work."""


class EnvContractError(PlugradError, ValueError):
    """An environment does not do what Gymnasium's contract says. Facts: `env`, `index`, `expected`, `found`."""


class NotBuiltError(PlugradError, ValueError):
    """A Learner was used before `build()`."""


class BatchError(PlugradError, ValueError):
    """A batch cannot be trained on. Facts: `module_id`, `column`, `expected`, `found`."""


class MissingColumnError(BatchError, KeyError):
    """The forward pass or the loss reads a column that the batch does not have. Facts as `BatchError`."""


class UnknownModuleError(BatchError, KeyError):
    """A module id is not among the learner's modules. Facts: `module_id`, `known`."""


class OptimizerError(PlugradError, ValueError):
    """An optimizer, or the parameters given with it, cannot be registered."""


class UnknownParameterError(OptimizerError, KeyError):
    """A gradient is named after nothing that an optimizer steps. Facts: `unknown`, `known`."""


class LossError(PlugradError, ValueError):
    """A loss or a metric has a shape or type that cannot be averaged."""


class ResultError(PlugradError, ValueError):
    """What `compile_results` returned is not what `update` returns."""


class NonFiniteError(PlugradError, FloatingPointError):
    """A loss or a gradient was NaN or infinite; the update that met it was undone."""


class NonFiniteBatchError(BatchError, NonFiniteError):
    """A batch has NaN or infinite values where the loss reads them. Facts as `BatchError`."""


class CheckpointError(PlugradError, OSError):
    """A checkpoint cannot be written or read."""


class RestoreMismatchError(PlugradError, ValueError):
    """A state does not fit the learner. Facts: `missing`, `unexpected`, `mismatched`. Nothing was changed."""


class CheckpointCorruptError(CheckpointError):
    """A file of a checkpoint is damaged, missing or not what the manifest says."""


class CheckpointUnsafeError(CheckpointError):
    """A checkpoint contains something that is not opened: a link, a device, a path, an oversized header."""


class CheckpointLockedError(CheckpointError):
    """Another process is writing to this checkpoint directory."""


class CheckpointVersionError(CheckpointError):
    """A checkpoint was written by a newer format than this plugrad reads."""


class LearnerGroupDeadError(PlugradError, RuntimeError):
    """No learner of the group is alive."""


class LearnerTimeoutError(PlugradError, TimeoutError):
    """A learner did not answer in time. Facts: `rank`, `phase`."""


class CollectiveError(PlugradError, RuntimeError):
    """Learners could not exchange their gradients; nothing was applied. Fact: `rank`, of who did not come."""


class QueueFullError(PlugradError, RuntimeError):
    """The group's queue is full and `on_full="raise"`."""


class PluginError(PlugradError, RuntimeError):
    """A plugin cannot be used: it fails to import, or its hooks do not fit the specifications."""


class PluginConflictError(PlugradError, ValueError):
    """Two plugins answer where one is meant, or two distributions claim one name."""


class BackendNotFoundError(PlugradError, LookupError):
    """No installed backend has this name, or its framework is missing."""


class MissingFrameworkError(BackendNotFoundError):
    """A plugin is installed and the framework that it needs is not. Fact: `requires`."""


class AlgorithmNotFoundError(PlugradError, LookupError):
    """No installed algorithm has this name."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'torch'?` for a near miss, else an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
