"""Forward passes of many rows outside of updates, as programs: each operation that JAX calls by itself costs more.

Rows are padded to powers of two, so that a changing number of them is compiled a few times and then never again.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from plugrad_jax.versions import IS_CONCRETE

LEAST_ROWS = 64
"""Fewer rows are computed by single operations: to compile takes as long as hundreds of such calls."""


class Forward:
    """A forward pass as a function of weights and columns.

    Args:
        function: `(weights, columns [B, ...]) -> tensors [B, ...]`, in any nested structure.
    """

    def __init__(self, function: Callable[[Mapping[str, Any], Mapping[str, Any]], Any]) -> None:
        self._function = jax.jit(function)

    @staticmethod
    def is_worth_it(columns: Mapping[str, Any]) -> bool:
        """Whether there are many rows, and no program is being traced.

        Args:
            columns: [B, ...].
        """
        is_concrete, leaves = IS_CONCRETE.find(), jax.tree.leaves(dict(columns))
        return is_concrete is not None and len(leaves[0]) >= LEAST_ROWS and all(map(is_concrete, leaves))

    def __call__(self, weights: Mapping[str, Any], columns: Mapping[str, Any]) -> Any:
        """Compute.

        Args:
            weights: arrays, on the host or on the device.
            columns: [B, ...].

        Returns:
            What the function returns.
        """
        own = dict(columns)
        rows = len(jax.tree.leaves(own)[0])
        missing = (1 << (rows - 1).bit_length()) - rows
        if not missing:
            return self._function(weights, own)
        padded = jax.tree.map(lambda x: jnp.concatenate([x, jnp.repeat(x[:1], missing, 0)]), own)
        return jax.tree.map(lambda x: x[:rows], self._function(weights, padded))
