"""What the loggers share: the numbers among results, and the import of their package."""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from plugrad.errors import MissingFrameworkError

TIMESTEPS = "num_env_steps_sampled_lifetime"


def numbers_of(results: Mapping[str, Any]) -> dict[str, float]:
    """The results that are single numbers, as floats."""
    return {key: float(value) for key, value in results.items() if isinstance(value, int | float)}


def required(package: str, *, extra: str = "") -> Any:
    """Import a logger's package.

    Args:
        package: the module's name.
        extra: the extra of plugrad that installs it; default: the package's name.

    Returns:
        The module.

    Raises:
        MissingFrameworkError: it is not installed; says what to type.
    """
    if find_spec(package) is None:
        extra = extra or package
        raise MissingFrameworkError(
            f'the {extra} logger needs {package}: pip install "plugrad[{extra}]"', requires=package
        )
    return import_module(package)
