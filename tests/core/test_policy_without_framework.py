"""Policy files that were written with a framework act in numpy where there is none, convolutions included."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

DATA = Path(__file__).parents[1] / "data" / "policies"
FILES = sorted(DATA.glob("*/*.safetensors"))
CODE = """
import sys
for name in ("torch", "tensorflow", "keras", "ray"):
    sys.modules[name] = None  # importing it is an error, as if it were not installed

import json
import plugrad
from safetensors.numpy import load_file

for path in sys.argv[1:]:
    policy = plugrad.load_policy(path)
    expected = load_file(path.removesuffix("safetensors") + "expected")
    parts = {name.partition("/")[2]: each for name, each in expected.items() if "/" in name}
    batch = parts.get("", parts)
    one = {name: each[0] for name, each in parts.items()}
    print(json.dumps([policy.predict(batch)[0].tolist(), policy.predict(one.get("", one))[0].tolist()]))
"""


def test_there_are_files_of_both_frameworks() -> None:
    assert {path.stem.rpartition("-")[2] for path in FILES} == {"torch", "tf2"}


@pytest.fixture(scope="module")
def acted() -> dict[str, list[list[float]]]:
    """What a process without any framework predicts: for a batch, and for the first observation of it."""
    done = subprocess.run([sys.executable, "-c", CODE, *map(str, FILES)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip([path.stem for path in FILES], map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_process_without_framework_acts_as_the_one_that_saved(
    path: Path, acted: dict[str, list[list[float]]]
) -> None:
    expected = load_file(path.with_suffix(".expected"))["actions"]
    largest = np.abs(expected).max()
    batch, one = acted[path.stem]
    assert np.ptp(expected, axis=0).max() > 0.05  # the observations matter
    np.testing.assert_allclose(batch, expected, rtol=0, atol=1e-5 * largest)
    np.testing.assert_allclose(one, expected[0], rtol=0, atol=1e-5 * largest)
