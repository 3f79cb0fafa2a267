"""A counter that no load would accept is refused when it is saved; infinite and fractional ones are kept."""

import tempfile

import numpy as np
from case import check, refused, small

from plugrad import Learner
from plugrad.errors import CheckpointError

for value in (0.5, float("-inf"), 2**70):
    with tempfile.TemporaryDirectory() as path:
        learner = small().build_learner()
        learner.counters["best"] = value
        learner.save_to_path(path)
        found = Learner.from_checkpoint(path).counters["best"]
        check(found == value, f"{value} was saved, and {found} loaded")
for value in (True, "x", np.arange(3.0), float("nan")):
    with tempfile.TemporaryDirectory() as path:
        learner = small().build_learner()
        learner.save_to_path(path)
        learner.counters["best"] = value
        with refused(CheckpointError, "'best'"):
            learner.save_to_path(path)
        check("best" not in Learner.from_checkpoint(path).counters, "the former save was lost")
