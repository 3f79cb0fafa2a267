"""What users of stable-baselines3 and RLlib ask of an Algorithm and plugrad does not have."""

from typing import Any

from plugrad.algorithm import Algorithm
from plugrad.deprecation.adapters import add_names
from plugrad.legacy.instead import INSTEAD_ON_ALGORITHMS


class OlderAlgorithm:
    """Names what to use."""

    def __getattr__(self: Any, name: str) -> Any:
        if name not in INSTEAD_ON_ALGORITHMS:
            return object.__getattribute__(self, name)  # Python's error, or the one of a property
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}. Here: {INSTEAD_ON_ALGORITHMS[name]}.",
            name=name,
            obj=self,
        )


def adapt() -> None:
    """Make an Algorithm's error of an unknown attribute say what to use."""
    add_names(Algorithm, OlderAlgorithm)
