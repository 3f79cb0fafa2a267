"""What loggers share: the numbers among results, and a package that must be there."""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from plugrad.errors import MissingFrameworkError

TIMESTEPS = "num_env_steps_sampled_lifetime"


def numbers_of(results: Mapping[str, Any]) -> dict[str, float]:
    """The single numbers among results; arrays have no place in a curve."""
    return {key: float(value) for key, value in results.items() if isinstance(value, int | float)}


def required(package: str) -> Any:
    """The package, imported.

    Raises:
        MissingFrameworkError: it is not installed; says what to type.
    """
    if find_spec(package) is None:
        raise MissingFrameworkError(
            f'the {package} logger needs {package}: pip install "plugrad[{package}]"', requires=package
        )
    return import_module(package)
