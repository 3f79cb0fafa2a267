"""`plugrad.initializers` is `plugrad.networks.initializers` now."""

import sys

from plugrad.deprecation import warn_renamed
from plugrad.networks import initializers

warn_renamed("plugrad.initializers", "plugrad.networks.initializers")
sys.modules[__name__] = initializers
