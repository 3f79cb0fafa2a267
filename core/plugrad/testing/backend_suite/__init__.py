"""Tests of a backend: every hook and every op, against numpy and finite differences.

The whole test file of a backend's author:

    from plugrad.testing.backend_suite import *

`plugrad.testing.fixtures` says how the backend gets its name. A test that passes has proven the sentence of its
docstring; what depends on a capability that the backend does not declare is skipped and named at the end.
"""

from plugrad.testing.backend_suite.modules import *  # noqa: F403
from plugrad.testing.backend_suite.ops import *  # noqa: F403
from plugrad.testing.backend_suite.programs import *  # noqa: F403
from plugrad.testing.backend_suite.updates import *  # noqa: F403
