"""The two crossings between numpy and the framework, and the variables that live between updates."""

from typing import Any

import numpy as np
import pytest

from plugrad.testing.tiny_learners import tiny_learner


def test_batches_cross_and_come_back(backend: str) -> None:
    """Nested dicts of arrays; floats of any width are float32 when they are back, the rest is what it was."""
    learner, rng = tiny_learner(backend), np.random.default_rng(0)
    batch: dict[str, dict[str, Any]] = {
        "a": {
            "float64": rng.normal(size=(3, 2)),
            "int64": np.arange(3),
            "uint8": np.arange(3, dtype=np.uint8),
        },
        "b": {"float32": np.ones((), np.float32), "bool": np.array([True, False]), "empty": np.zeros((0, 2))},
    }
    back = learner._convert_to_numpy(learner._convert_batch_type(batch))
    for module_id, columns in batch.items():
        for column, array in columns.items():
            found = back[module_id][column]
            assert isinstance(found, np.ndarray | np.generic), (
                f"{column}: convert_to_numpy gives {type(found)}"
            )
            assert found.dtype.kind == array.dtype.kind, f"{column} came back as {found.dtype}"
            np.testing.assert_array_equal(np.asarray(found, np.float32), np.asarray(array, np.float32))


@pytest.mark.filterwarnings("error")
def test_batches_of_every_layout_are_good(backend: str) -> None:
    """Read-only, reversed, transposed and strided arrays are good batches; and a batch is never written to."""
    array = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    array.flags.writeable = False
    layouts = {"plain": array, "reversed": array[::-1], "transposed": array.T, "strided": array[::2]}
    learner = tiny_learner(backend)
    found = learner._convert_to_numpy(learner._convert_batch_type(layouts))
    for name, layout in layouts.items():
        np.testing.assert_array_equal(found[name], layout, err_msg=name)
        found[name] = found[name] + 1.0
    np.testing.assert_array_equal(array, np.arange(12.0).reshape(4, 3))


@pytest.mark.parametrize("value", [0.5, 3, True, np.arange(3.0), np.arange(3)], ids=str)
def test_variables_keep_their_place_and_give_copies(backend: str, value: Any) -> None:
    """`read` follows `assign`; `snapshot` and `numpy` are copies; floats are float32, ints int32, unless told."""
    learner = tiny_learner(backend)
    variable = learner._get_tensor_variable(value)
    kinds = {"f": "float32", "i": "int32", "b": "bool"}
    assert str(variable.numpy().dtype) == kinds[np.asarray(value).dtype.kind]
    first, copy = variable.snapshot(), variable.numpy()
    variable.assign(np.zeros_like(value))
    np.testing.assert_array_equal(learner._convert_to_numpy(variable.read()), np.zeros_like(value))
    np.testing.assert_array_equal(copy, value, err_msg="numpy() is a view of the live buffer")
    variable.assign(first)
    np.testing.assert_array_equal(variable.numpy(), value, err_msg="snapshot() is a view of the live buffer")
    assert str(learner._get_tensor_variable(1, "float32").numpy().dtype) == "float32"


__all__ = [name for name in dir() if name.startswith("test_")]
