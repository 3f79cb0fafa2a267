"""RLlib's functions of nested structures: dicts, tuples and lists of arrays, tensors, numbers or spaces."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Dict, Space, Tuple

DECIMALS = 5
"""Digits after the point that `check` compares."""


def convert_to_numpy(x: Any, reduce_type: bool = True) -> Any:
    """A structure whose tensors, of any backend, are arrays.

    Args:
        x: the structure. What is neither an array nor a tensor stays.
        reduce_type: floats become float32, and whole numbers int32.

    Returns:
        The structure; a tensor without axes is a number.
    """

    def array(leaf: Any) -> Any:
        if hasattr(leaf, "detach"):  # of torch
            leaf = leaf.detach().cpu()
        if not (isinstance(leaf, np.ndarray) or hasattr(leaf, "__array__")) or isinstance(leaf, np.generic):
            return leaf
        found = np.asarray(leaf)
        if not isinstance(leaf, np.ndarray) and found.ndim == 0:
            return found.item()
        if reduce_type and np.issubdtype(found.dtype, np.floating):
            return found.astype(np.float32)
        return (
            found.astype(np.int32) if reduce_type and np.issubdtype(found.dtype, np.signedinteger) else found
        )

    return _mapped(array, x)


def convert_to_torch_tensor(x: Any, device: str | None = None) -> Any:
    """A structure whose arrays and numbers are tensors of torch; float64 becomes float32.

    Args:
        x: the structure; None, and arrays of texts or objects, stay.
        device: where the tensors are; None: the CPU.

    Returns:
        The structure.
    """
    import torch

    def tensor(leaf: Any) -> Any:
        if leaf is None or (not torch.is_tensor(leaf) and np.asarray(leaf).dtype.kind in "OUS"):
            return leaf
        found = leaf if torch.is_tensor(leaf) else torch.as_tensor(np.asarray(leaf))
        return (found.float() if found.dtype == torch.float64 else found).to(device or "cpu")

    return _mapped(tensor, x)


def _mapped(function: Callable[[Any], Any], x: Any) -> Any:
    if isinstance(x, Mapping):
        return {key: _mapped(function, each) for key, each in x.items()}
    if isinstance(x, tuple | list):
        parts = [_mapped(function, each) for each in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return function(x)


def flatten_space(space: Space[Any]) -> list[Space[Any]]:
    """The spaces of which a space of Dicts and Tuples consists; the keys of a Dict in their order.

    Args:
        space: any space.

    Returns:
        The spaces that are neither a Dict nor a Tuple.
    """
    if isinstance(space, Dict):
        return [each for key in sorted(space.spaces) for each in flatten_space(space[key])]
    return [each for part in space for each in flatten_space(part)] if isinstance(space, Tuple) else [space]


def check(
    x: Any,
    y: Any,
    decimals: int = DECIMALS,
    atol: float | None = None,
    rtol: float | None = None,
    false: bool = False,
) -> None:
    """Assert that two structures are equal, or that none of their parts are.

    Args:
        x: a structure of arrays, tensors, numbers, texts and None.
        y: another one.
        decimals: digits after the point that are equal.
        atol: the largest difference, in place of decimals.
        rtol: the largest difference, as a share of y, likewise.
        false: the parts differ.

    Raises:
        AssertionError: it is otherwise.
    """
    settings: dict[str, Any] = {"decimals": decimals, "atol": atol, "rtol": rtol, "false": false}
    if isinstance(x, Mapping):
        keys = y.keys() if isinstance(y, Mapping) else None
        assert x.keys() == keys, f"check: the keys of {x} and {y} differ"
        for key in x:
            check(x[key], y[key], **settings)
        return
    if isinstance(x, tuple | list):
        length = len(y) if isinstance(y, tuple | list) else None
        assert len(x) == length, f"check: the lengths of {x} and {y} differ"
        for one, other in zip(x, y, strict=True):
            check(one, other, **settings)
        return
    first, second = convert_to_numpy(x, False), convert_to_numpy(y, False)
    are_equal = _are_equal(first, second, decimals, atol, rtol)
    assert are_equal is not false, f"check: {x} is {'the same as' if false else 'not'} {y}"


def _are_equal(x: Any, y: Any, decimals: int, atol: float | None, rtol: float | None) -> bool:
    is_exact = any(each is None or np.asarray(each).dtype.kind in "bOUS" for each in (x, y))
    try:
        if is_exact:
            np.testing.assert_array_equal(x, y)
        elif atol is None and rtol is None:
            np.testing.assert_almost_equal(x, y, decimal=decimals)
        else:
            np.testing.assert_allclose(x, y, atol=atol or 0.0, rtol=1e-7 if rtol is None else rtol)
    except AssertionError:
        return False
    return True
