"""Convolutions as matrix products, for programs that XLA compiles; and which programs run faster without XLA.

XLA on the CPU has no fast gradient of a convolution inside a loop. tf.nn.conv2d takes 10 to 30 times as long there.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from plugrad.types import Tensor

LARGE = 50_000
"""From so many numbers of patches per image on, TensorFlow's kernels are faster than these products: 84x84x4 pixels
with kernels of 8 and a stride of 4 have 102,400, and 42x42x3 with kernels of 4 and a stride of 2 have 19,200, where
both take the same time. Measured on AMD EPYC with TensorFlow 2.21."""
_LARGE_PATCHES = "large_patches"
_GRADIENTS = frozenset(
    f"{convolution}Backprop{of}{version}"
    for convolution, version in (("Conv2D", ""), ("Conv3D", "V2"), ("DepthwiseConv2dNative", ""))
    for of in ("Input", "Filter")
)


def product_of_patches(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """A convolution as matrix products, one for each image.

    Args:
        x: [B, H, W, in].
        weight: [h, w, in, out].
        stride: in both height and width.

    Returns:
        [B, H', W', out], as `Ops.conv2d`.
    """
    height, width, _, outputs = weight.shape
    rows, columns = ((x.shape[n] - weight.shape[n - 1]) // stride + 1 for n in (1, 2))
    patches = [
        x[:, i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride]
        for i in range(height)
        for j in range(width)
    ]
    shape = [rows * columns, height * width * x.shape[3]]
    name = _LARGE_PATCHES if shape[0] * shape[1] >= LARGE else "patches"
    matrices = tf.reshape(tf.concat(patches, -1), [-1, *shape], name)
    return tf.reshape(_products(matrices, tf.reshape(weight, [-1, outputs])), [-1, rows, columns, outputs])


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _products(matrices: Tensor, weight: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
    """Each of `matrices` [B, n, in] times `weight` [in, out].

    XLA on the CPU is slow at the long product that TensorFlow takes for the gradient of the weight. Shorter ones, with
    the outputs as rows, and their sum take half of its time.
    """

    def gradients(upstream: Tensor) -> tuple[Tensor, Tensor]:
        of_weight = tf.reduce_sum(tf.matmul(upstream, matrices, transpose_a=True), 0)
        return tf.matmul(upstream, weight, transpose_b=True), tf.transpose(of_weight)

    return tf.matmul(matrices, weight), gradients


def are_faster_without_xla(graph: Any) -> bool:
    """Whether a traced program has large convolutions, or gradients of a model's own convolutions.

    Args:
        graph: of the program.
    """
    definition = graph.as_graph_def()
    nodes = [*definition.node, *[node for each in definition.library.function for node in each.node_def]]
    return any(
        node.op in _GRADIENTS or node.name.rsplit("/", 1)[-1].startswith(_LARGE_PATCHES) for node in nodes
    )
