"""Initial weights, drawn in numpy so that equal seeds give equal networks on every backend."""

import numpy as np

from plugrad.types import Array


def orthogonal(rng: np.random.Generator, shape: tuple[int, int], gain: float) -> Array:
    """A matrix [in, out] with orthonormal rows or columns, times `gain` (Saxe et al. 2014, section 3).

    Q of the QR decomposition of a Gaussian matrix; signs follow R's diagonal, so that Q is uniform over the
    orthogonal group (Mezzadri 2007).
    """
    rows, columns = shape
    gaussian = rng.standard_normal((max(shape), min(shape)))
    q, r = np.linalg.qr(gaussian)
    q = q * np.sign(np.diag(r))
    matrix: Array = np.asarray(gain * (q if rows >= columns else q.T), np.float32)
    return matrix


def constant(rng: np.random.Generator, shape: tuple[int, ...], value: float) -> Array:
    """An array full of one value; the generator is not used."""
    return np.full(shape, value, np.float32)
