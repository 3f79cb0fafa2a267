"""Training and inference mode of Keras layers.

A layer that is called without `training=` takes the mode of the layer that calls it. So a function that must run in a
mode is called within a layer that does nothing else.
"""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import tensorflow as tf


class _ModeLayer(tf.keras.layers.Layer):  # type: ignore[misc]
    """Calls what it is given."""

    def __init__(self) -> None:
        super().__init__(name="mode", dtype="float32", autocast=False)
        self.built = True

    def call(self, work: Any, training: bool = False) -> None:
        """`work()`, for whose result and errors Keras has no eyes."""
        work()


@cache
def _mode_layer() -> _ModeLayer:
    return _ModeLayer()


def call_in_mode(training: bool, work: Callable[[], Any]) -> Any:
    """Call a function in which Keras layers called without `training=` have this mode.

    Args:
        training: the mode.
        work: a function without arguments.

    Returns:
        What it returns.

    Raises:
        BaseException: what the function raises, unchanged.
    """
    results: list[Any] = []
    errors: list[BaseException] = []

    def noting() -> None:
        try:
            results.append(work())
        except BaseException as error:  # Keras would make another one of it
            errors.append(error)

    _mode_layer()(work=noting, training=training)
    if errors:
        raise errors[0]
    return results[0]


def takes_training(model: Any) -> bool:
    """Whether a model must be told the mode: one that is no Keras layer, or a layer whose `training` has no default."""
    if isinstance(model, tf.keras.layers.Layer):
        parameter = inspect.signature(model.call).parameters.get("training")
        return parameter is not None and parameter.default is parameter.empty
    return "training" in inspect.signature(model).parameters
