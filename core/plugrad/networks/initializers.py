"""Weight initializers, in numpy, so that equal seeds give equal networks on every backend."""

from math import prod

import numpy as np

from plugrad.types import Array


def orthogonal(rng: np.random.Generator, shape: tuple[int, ...], gain: float) -> Array:
    """Draw a matrix with orthonormal rows or columns, times `gain`.

    It is the Q of the QR decomposition of a Gaussian matrix, with the signs of R's diagonal, so that Q is uniform over
    the orthogonal group. Sources: Saxe et al. 2014, arXiv:1312.6120 (the initializer); Mezzadri 2007,
    arXiv:math-ph/0609050, section 5 (the signs).

    Args:
        rng: the source of randomness.
        shape: (..., out). All dimensions except the last count as inputs: a kernel (height, width, in, out) is drawn as
            a matrix (height * width * in, out).
        gain: the factor.

    Returns:
        float32 of this shape.
    """
    rows, columns = prod(shape[:-1]), shape[-1]
    gaussian = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(gaussian)
    q = q * np.sign(np.diag(r))
    matrix: Array = np.asarray(gain * (q if rows >= columns else q.T), np.float32)
    return matrix.reshape(shape)


def uniform(rng: np.random.Generator, shape: tuple[int, ...], bound: float) -> Array:
    """Draw uniform numbers.

    Args:
        rng: the source of randomness.
        shape: the array's shape.
        bound: the numbers lie in [-bound, bound).

    Returns:
        float32 of this shape.
    """
    return rng.uniform(-bound, bound, shape).astype(np.float32)


def constant(rng: np.random.Generator, shape: tuple[int, ...], value: float) -> Array:
    """Make an array full of one value.

    Args:
        rng: not used.
        shape: the array's shape.
        value: the value.

    Returns:
        float32 of this shape.
    """
    return np.full(shape, value, np.float32)
