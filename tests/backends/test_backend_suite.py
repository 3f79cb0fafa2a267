"""Our backends go through the suite that every author's goes through."""

from plugrad.testing.backend_suite import *  # noqa: F403
