"""Initial weights, drawn in numpy so that equal seeds give equal networks on every backend."""

from math import prod

import numpy as np

from plugrad.types import Array


def orthogonal(rng: np.random.Generator, shape: tuple[int, ...], gain: float) -> Array:
    """A matrix [in, out] with orthonormal rows or columns, times `gain` (Saxe et al. 2014, arXiv:1312.6120).

    All dimensions of `shape` but the last count as inputs: a kernel [height, width, in, out] is such a matrix too.
    Q of the QR decomposition of a Gaussian matrix; signs follow R's diagonal, so that Q is uniform over the
    orthogonal group (Mezzadri 2007, arXiv:math-ph/0609050, section 5).
    """
    rows, columns = prod(shape[:-1]), shape[-1]
    gaussian = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(gaussian)
    q = q * np.sign(np.diag(r))
    matrix: Array = np.asarray(gain * (q if rows >= columns else q.T), np.float32)
    return matrix.reshape(shape)


def constant(rng: np.random.Generator, shape: tuple[int, ...], value: float) -> Array:
    """An array full of one value; the generator is not used."""
    return np.full(shape, value, np.float32)
