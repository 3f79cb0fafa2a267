"""Tests of a collective: exact sums, faults that are noticed, epochs that are kept apart, nothing left behind.

The whole test file of a collective's author:

    from plugrad.testing.collective_suite import *

`plugrad.testing.fixtures` says how the collective gets its name. Each end is in a process of its own, which is killed,
stopped or left waiting. A test that passes has proven the sentence of its docstring.
"""

from plugrad.testing.collective_suite.failures import *  # noqa: F403
from plugrad.testing.collective_suite.sums import *  # noqa: F403
