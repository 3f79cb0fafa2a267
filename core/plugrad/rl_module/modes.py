"""Training mode and inference mode of modules: which of a module's methods runs in which.

Layers such as BatchNorm and Dropout compute one thing while they are trained and another while they act.
`forward_train` is of training; acting and values are of inference. Knows no framework.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

IS_TRAINING = {
    "forward_train": True,
    "forward_exploration": False,
    "forward_inference": False,
    "compute_values": False,
}
"""The methods that callers use, and whether each is of training."""


def keep_modes(cls: type[Any]) -> None:
    """Let these methods of a class run through its `in_mode`, also where a class overrides them.

    Args:
        cls: a class of modules with `in_mode(training, forward, *args, **kwargs)`.
    """
    for name, training in IS_TRAINING.items():
        method = getattr(cls, name)
        if not hasattr(method, "keeps_mode"):
            setattr(cls, name, _in_mode(method, training))


def _in_mode(method: Callable[..., Any], training: bool) -> Callable[..., Any]:
    @wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.in_mode(training, partial(method, self), *args, **kwargs)

    run.keeps_mode = training  # type: ignore[attr-defined]
    return run
