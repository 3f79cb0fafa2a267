"""Training mode and inference mode of modules.

Layers such as BatchNorm and Dropout compute different things in training mode and in inference mode. The methods that
compute are wrapped to set the mode. For a Dict or Tuple space the wrapper also puts observations into that structure.
"""

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

from plugrad.batch import Rows
from plugrad.columns import Columns
from plugrad.observations import is_structured
from plugrad.rl_module.outputs import describe

IS_TRAINING = {
    "forward_train": True,
    "forward_exploration": False,
    "forward_inference": False,
    "compute_values": False,
}
"""The public methods of a module that compute, and whether each runs in training mode."""


def keep_modes(cls: type[Any]) -> None:
    """Wrap the methods in `IS_TRAINING` of a class, so that each runs through the module's `in_mode`.

    They get observations in the structure of the module's space.

    Args:
        cls: a class of modules with `in_mode(training, forward, *args, **kwargs)`.
    """
    for name, training in IS_TRAINING.items():
        method = getattr(cls, name)
        if not hasattr(method, "keeps_mode"):
            setattr(cls, name, _in_mode(method, training))


def _in_mode(method: Callable[..., Any], training: bool) -> Callable[..., Any]:
    @wraps(method)
    def run(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        read = with_structured_obs(self, batch)
        try:
            return self.in_mode(training, partial(method, self), read, *args, **kwargs)
        except Exception as error:
            _note_call(error, self.class_name, read)
            raise

    run.keeps_mode = training  # type: ignore[attr-defined]
    return run


def with_structured_obs(module: Any, batch: Any) -> Any:
    """Put OBS into the structure of a module's Dict or Tuple space, for the model and for losses.

    Any other batch is returned unchanged.

    Args:
        module: an RLModule; a built-in network reads rows.
        batch: `{column: tensor}`, with OBS as rows or already in the structure.

    Returns:
        The batch; a new one if OBS is changed.
    """
    space = module.observation_space
    if not is_structured(space) or module.network is not None or Columns.OBS not in batch:
        return batch
    if isinstance(batch[Columns.OBS], Mapping | tuple):
        return batch
    structured = {Columns.OBS: module.observations_in_structure(batch[Columns.OBS])}
    return batch.with_columns(structured) if isinstance(batch, Rows) else {**batch, **structured}


def _note_call(error: Exception, model: str, batch: Any) -> None:
    """Add to an error of a user's model what the model had read before it raised."""
    read = getattr(batch, "taken", batch)
    columns = ", ".join(f"{name} {describe(each)}" for name, each in read.items()) if read else "nothing"
    note = f"in {model}, called with {columns}"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
