"""Forward passes outside of updates, as traced functions: eager TensorFlow takes longer to call than to compute.

Rows are padded to powers of two, so that a changing number of them is traced a few times and then never again. The
functions read the module's variables: a change of the weights needs no new trace.
"""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from plugrad_tf2.devices import is_first
from plugrad_tf2.without_xla import without_xla

Forward = Callable[[Mapping[str, Any]], Any]


def traced(forward: Forward) -> Forward:
    """`forward` of columns [B, ...] to tensors [B, ...], in any nested structure, as a traced function."""
    function = tf.function(forward, autograph=False)

    def call(batch: Mapping[str, Any]) -> Any:
        columns = dict(batch)
        first = tf.nest.flatten(columns)[0]
        if not is_first(first.device):
            with tf.device(first.device):
                return computed(columns, first.shape[0])
        return computed(columns, first.shape[0])

    def computed(columns: Mapping[str, Any], rows: int) -> Any:
        missing = (1 << (rows - 1).bit_length()) - rows
        if not missing:
            with without_xla():
                return function(columns)
        padded = tf.nest.map_structure(lambda x: tf.concat([x, tf.repeat(x[:1], missing, 0)], 0), columns)
        with without_xla():
            outputs = function(padded)
        return tf.nest.map_structure(lambda x: x[:rows], outputs)

    return call
