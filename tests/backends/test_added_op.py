"""An op that is added to one file of a backend is proven by the suite."""

from pathlib import Path

from added_op import CopyWithCube


def test_an_added_op_is_proven_by_one_file_of_the_backend(backend: str, tmp_path: Path) -> None:
    """What it takes, its values, and its gradient, against numpy."""
    said = CopyWithCube(tmp_path, backend).prove(backend)
    for test in ("arguments_of_the_protocol[cube]", "of_numpy[cube-float32]", "differences_of_numpy[cube]"):
        assert f"{test} PASSED" in said
