"""What each of two learners gets in `deadlock.py`. numpy only, because the peers run in a venv without plugrad."""

from workload import SMALL, Batch, make_batch

UPDATES = 3
CASES = {
    "same order": (("a", "b"), ("a", "b")),
    "opposite orders": (("a", "b"), ("b", "a")),
    "opposite orders, equal networks": (("a", "b"), ("b", "a")),
    "one learner lacks a module": (("a", "b"), ("a",)),
}
"""`{case: the modules of each learner's rows, in their order}`."""


def hiddens(case: str) -> dict[str, int]:
    """The width of each module's layer."""
    return {"a": 16, "b": 16 if "equal networks" in case else 32}


def rows(case: str, learner: int, update: int) -> dict[str, Batch]:
    """The rows of a learner in an update: as many of each module."""
    return {
        module_id: make_batch(SMALL, 100 * update + 10 * learner + ord(module_id), 64)
        for module_id in CASES[case][learner]
    }
