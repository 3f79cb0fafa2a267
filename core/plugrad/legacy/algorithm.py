"""What users of stable-baselines3 and RLlib ask of an Algorithm and plugrad does not have."""

from typing import Any

from plugrad.algorithm import Algorithm
from plugrad.deprecation.adapters import add_names
from plugrad.legacy.instead import INSTEAD_ON_ALGORITHMS, no_attribute


class OlderAlgorithm:
    """Names what to use."""

    def __getattr__(self: Any, name: str) -> Any:
        return no_attribute(self, name, INSTEAD_ON_ALGORITHMS)


def adapt() -> None:
    """Make an Algorithm's error of an unknown attribute say what to use."""
    add_names(Algorithm, OlderAlgorithm)
