"""Users' modules as ONNX models, by tf2onnx."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from plugrad.hooks.backend_types import Forward
from plugrad.hooks.markers import hookimpl
from plugrad.importing.on_use import require_extra


@hookimpl
def export_onnx(forward: Forward, columns: Mapping[str, Any], opset: int) -> bytes:
    """Convert a forward pass; see `BackendSpec.export_onnx`.

    Args:
        forward: of a user's module.
        columns: `{column: tensor [2, ...]}`, an example.
        opset: version of ONNX's operators.

    Returns:
        A serialised `onnx.ModelProto`.

    Raises:
        MissingFrameworkError: `tf2onnx` is not installed.
    """
    require_extra("tf2onnx", "onnx-keras", "a Keras model as ONNX")
    import tf2onnx

    function = tf.function(
        lambda *tensors: forward(dict(zip(columns, tensors, strict=True))), autograph=False
    )
    signature = [tf.TensorSpec([None, *each.shape[1:]], each.dtype, name) for name, each in columns.items()]
    model, _ = tf2onnx.convert.from_function(function, input_signature=signature, opset=opset)
    serialized: bytes = model.SerializeToString()
    return serialized
