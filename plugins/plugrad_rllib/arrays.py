"""Small functions that RLlib's modules and environments import: batches of structures, `softmax`, images, padding."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from plugrad.errors import MissingFrameworkError
from plugrad.types import Array

SMALL_NUMBER = 1e-6
"""The least probability of `softmax`."""

FLOAT_MIN, FLOAT_MAX = -3.4e38, 3.4e38
"""Numbers for infinity, such as the logit of a choice that is not allowed."""


def batch(
    list_of_structs: Sequence[Any], *, individual_items_already_have_batch_dim: bool | str = False
) -> Any:
    """A structure of batches of a list of equal structures of dicts and tuples.

    Args:
        list_of_structs: numbers, arrays `[...]`, or dicts and tuples of them, one for each row.
        individual_items_already_have_batch_dim: True: arrays are `[B, ...]` each, and are joined; False and "auto":
            they are stacked.

    Returns:
        An array `[B, ...]`, or a dict or tuple of arrays.

    Raises:
        ValueError: the list is empty, or the structures differ.
    """
    if len(list_of_structs) == 0:
        raise ValueError("batch([]): expected at least one item")
    join: Any = np.concatenate if individual_items_already_have_batch_dim is True else np.stack
    first = list_of_structs[0]
    if isinstance(first, Mapping):
        if any(each.keys() != first.keys() for each in list_of_structs):
            raise ValueError(f"batch: not every item has the keys {', '.join(map(str, first))}")
        return {key: _batched([each[key] for each in list_of_structs], join) for key in first}
    if isinstance(first, tuple):
        if any(len(each) != len(first) for each in list_of_structs):
            raise ValueError(f"batch: not every item has {len(first)} parts")
        return tuple(_batched(list(parts), join) for parts in zip(*list_of_structs, strict=True))
    return join([np.asarray(each) for each in list_of_structs])


def _batched(items: list[Any], join: Any) -> Any:
    return batch(items, individual_items_already_have_batch_dim=join is np.concatenate)


def unbatch(batches_struct: Any) -> list[Any]:
    """The structures of which `batch` makes this one.

    Args:
        batches_struct: an array `[B, ...]`, or a dict or tuple of them.

    Returns:
        One structure for each row.
    """
    if isinstance(batches_struct, Mapping):
        parts = [unbatch(each) for each in batches_struct.values()]
        return [dict(zip(batches_struct, row, strict=True)) for row in zip(*parts, strict=True)]
    if isinstance(batches_struct, tuple):
        return list(zip(*(unbatch(each) for each in batches_struct), strict=True))
    return list(batches_struct)


def softmax(x: Any, axis: int = -1, epsilon: float | None = None) -> Array:
    """`exp(x) / sum(exp(x))`.

    Args:
        x: numbers `[...]`.
        axis: over which the sum is 1, but for epsilon.
        epsilon: the least value of the result; None: 1e-6.

    Returns:
        `[...]`.
    """
    values = np.asarray(x)
    powers = np.exp(values - values.max(axis=axis, keepdims=True))
    found: Array = np.maximum(powers / powers.sum(axis=axis, keepdims=True), epsilon or SMALL_NUMBER)
    return found


def sigmoid(x: Any, derivative: bool = False) -> Array:
    """`1 / (1 + exp(-x))`.

    Args:
        x: numbers `[...]`.
        derivative: they are such values already, and the result is their derivative, `x (1 - x)`.

    Returns:
        `[...]`.
    """
    values = np.asarray(x)
    found: Array = values * (1 - values) if derivative else 1 / (1 + np.exp(-values))
    return found


def one_hot(x: Any, depth: int = 0, on_value: float = 1.0, off_value: float = 0.0) -> Array:
    """Rows that are `on_value` at their number, else `off_value`.

    Args:
        x: whole numbers `[...]`.
        depth: the length of a row; 0: one more than the largest number.
        on_value: see above.
        off_value: see above.

    Returns:
        float32 `[..., depth]`.
    """
    numbers = np.asarray(x).astype(np.int64)
    rows = np.full((*numbers.shape, depth or int(numbers.max()) + 1), off_value, np.float32)
    np.put_along_axis(rows, numbers[..., None], on_value, axis=-1)
    return rows


def resize(img: Array, height: int, width: int) -> Array:
    """An image of another size, of the means of areas.

    Args:
        img: uint8 `[H, W, ...]`.
        height: in pixels.
        width: in pixels.

    Returns:
        `[height, width, ...]`.

    Raises:
        MissingFrameworkError: opencv is not installed.
    """
    cv2 = _opencv("resize")
    found: Array = cv2.resize(img, (width, height), interpolation=cv2.INTER_AREA)
    return found


def rgb2gray(img: Array) -> Array:
    """The grey image `[H, W]` of a coloured one `[H, W, 3]`; see `resize` for errors."""
    cv2 = _opencv("rgb2gray")
    found: Array = cv2.cvtColor(img, cv2.COLOR_RGB2GRAY)
    return found


Sizes = Sequence[int] | int


def same_padding(
    in_size: Sequence[int], filter_size: Sizes, stride_size: Sizes
) -> tuple[tuple[int, int, int, int], tuple[int, int]]:
    """The zeros around an image with which a convolution gives `ceil(size / stride)` pixels.

    Args:
        in_size: height and width.
        filter_size: of the filter, for both or for each.
        stride_size: of the steps, likewise.

    Returns:
        `((left, right, top, bottom), (height, width) of the result)`.
    """
    added, out = [], []
    for size, width, stride in zip(in_size, _pair(filter_size), _pair(stride_size), strict=True):
        out.append(-(-int(size) // stride))
        missing = max((out[-1] - 1) * stride + width - int(size), 0)
        added.append((missing // 2, missing - missing // 2))
    (top, bottom), (left, right) = added
    return (left, right, top, bottom), (out[0], out[1])


def valid_padding(in_size: Sequence[int], filter_size: Sizes, stride_size: Sizes) -> tuple[int, int]:
    """The size of what a convolution without zeros around the image gives.

    Args:
        in_size: height and width.
        filter_size: of the filter, for both or for each.
        stride_size: of the steps, likewise.

    Returns:
        Height and width.
    """
    height, width = (
        -(-(int(size) - each + 1) // stride)
        for size, each, stride in zip(in_size, _pair(filter_size), _pair(stride_size), strict=True)
    )
    return height, width


def _pair(sizes: Sizes) -> tuple[int, int]:
    if isinstance(sizes, int):
        return sizes, sizes
    first, second = sizes
    return int(first), int(second)


def normc_initializer(std: float = 1.0) -> Callable[[Any], None]:
    """A function that fills a tensor of torch with rows of one length, in random directions.

    Args:
        std: the length.

    Returns:
        The function.
    """

    def fill(tensor: Any) -> None:
        tensor.data.normal_(0, 1)
        tensor.data *= std / (tensor.data**2).sum(1, keepdim=True).sqrt()

    return fill


def _opencv(who: str) -> Any:
    try:
        import cv2
    except ImportError as error:
        raise MissingFrameworkError(
            f'{who} needs opencv: pip install "plugrad[atari]"', requires="cv2"
        ) from error
    return cv2
