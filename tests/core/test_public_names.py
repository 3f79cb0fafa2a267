"""Public names are promises: one that appears or goes must do so on purpose."""

from pathlib import Path

import plugrad
from plugrad.algorithm import Algorithm
from plugrad.hooks.fronts import hooked_methods

SNAPSHOT = Path(__file__).with_name("public_names.txt")
REGENERATE = "python tests/core/test_public_names.py"


def members(cls: type) -> set[str]:
    """Public ones, and the methods with an underscore that are hooks: subclasses override them."""
    return {name for name in dir(cls) if not name.startswith("_")} | hooked_methods(cls).keys()


def public_names() -> str:
    sections = {
        "plugrad": plugrad.__all__,
        "Learner": members(plugrad.Learner),
        "LearnerGroup": members(plugrad.LearnerGroup),
        "Algorithm": members(Algorithm),
        "AlgorithmConfig.fields()": plugrad.AlgorithmConfig.fields(),
        "PPOConfig.fields()": plugrad.get_algorithm("ppo").fields(),
        "BCConfig.fields()": plugrad.get_algorithm("bc").fields(),
        "DQNConfig.fields()": plugrad.get_algorithm("dqn").fields(),
    }
    return "".join(f"{where}: {name}\n" for where, names in sections.items() for name in sorted(names))


def test_public_names_are_those_of_the_snapshot():
    expected, found = SNAPSHOT.read_text().splitlines(), public_names().splitlines()
    new, gone = (
        [each for each in found if each not in expected],
        [each for each in expected if each not in found],
    )
    assert found == expected, f"new: {new}, gone: {gone}. If that is meant, run: {REGENERATE}"


if __name__ == "__main__":
    SNAPSHOT.write_text(public_names())
