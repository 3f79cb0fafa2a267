"""`WeightsOnDemand`: weights that are copied only when they are read."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from plugrad.types import Array


class WeightsOnDemand(Mapping[str, Array]):
    """`{parameter name: numpy copy}`, each copied when it is first read: acting does not read the critic.

    Args:
        weights: `{parameter name: parameter}` of the framework.
        copy: makes a numpy copy of a parameter.
    """

    def __init__(self, weights: Mapping[str, Any], copy: Callable[[Any], Array]) -> None:
        self._weights = weights
        self._copy = copy
        self._copies: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._copies:
            self._copies[name] = self._copy(self._weights[name])
        return self._copies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)
