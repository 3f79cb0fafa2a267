"""Packages of extras, which may be missing."""

from importlib.util import find_spec

from plugrad.errors import MissingFrameworkError


def require_extra(package: str, extra: str, use: str) -> None:
    """Check that a package of an extra is installed.

    Args:
        package: the name to import.
        extra: of plugrad, that installs it.
        use: what needs it.

    Raises:
        MissingFrameworkError: it is missing; says what to type.
    """
    if find_spec(package) is None:
        raise MissingFrameworkError(
            f'{use} needs {package}: pip install "plugrad[{extra}]"', requires=package
        )
