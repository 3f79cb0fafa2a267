"""Checkpoints of every version that was released, and what a learner that opens one must do.

`tests/data/checkpoints/make.py` wrote them. Knows no backend: the tests that use it choose one.
"""

from pathlib import Path
from typing import Any

from learning import largest_difference

from plugrad import Learner
from plugrad.algorithm import Algorithm
from plugrad.checkpoint import load_checkpoint

FOLDER = Path(__file__).parent / "data" / "checkpoints"
GOLDEN = sorted(path for path in FOLDER.glob("*/*") if path.is_dir())


def names() -> list[str]:
    """`<version>/<name>` of each."""
    return [str(path.relative_to(FOLDER)) for path in GOLDEN]


def expected_of(name: str) -> dict[str, Any]:
    """What was recorded: observations, what was done on them, a batch, and the state after an update on it."""
    return load_checkpoint(FOLDER / name / "expected").state


def assert_goes_on(name: str, backend: str) -> None:
    """It opens, acts as it would have acted, and learns what it would have learned."""
    kind = load_checkpoint(FOLDER / name).metadata["kind"]
    {"learner": _check_learner, "algorithm": _check_algorithm}[kind](name, backend)


def _check_learner(name: str, backend: str) -> None:
    expected = expected_of(name)
    learner = Learner.from_checkpoint(FOLDER / name, backend=backend)
    for module_id, acted in expected["acted"].items():
        found = learner.compute_actions(expected["observations"], module_id=module_id)
        assert largest_difference(found, acted) < 1e-5
    before = learner.get_weights()
    learner.update(expected["batch"], timesteps=expected["timesteps"])
    state, then = learner.get_state(list(expected["state"])), expected["state"]
    assert largest_difference(state["rl_module"], before) > 1e-3
    assert largest_difference(state["rl_module"], then["rl_module"]) < 1e-5
    assert largest_difference(state["coefficients"], then["coefficients"]) < 1e-5
    assert {key: state["counters"][key] for key in then["counters"]} == then["counters"]  # others are newer
    assert state["streams"] == then["streams"]


def _check_algorithm(name: str, backend: str) -> None:
    expected = expected_of(name)
    algorithm = Algorithm.from_checkpoint(FOLDER / name, backend=backend)
    before = algorithm.learner_group.get_weights()
    algorithm.train()
    after = algorithm.learner_group.get_weights()
    algorithm.stop()
    assert algorithm.iteration == expected["training_iteration"]
    assert largest_difference(after, before) > 1e-3
    assert largest_difference(after, expected["weights"]) < 1e-5
