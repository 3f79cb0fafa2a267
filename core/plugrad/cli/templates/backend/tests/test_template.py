"""Every hook and every op, against numpy and finite differences; what the backend does not declare is left out."""

from plugrad.testing.backend_suite import *  # noqa: F403
