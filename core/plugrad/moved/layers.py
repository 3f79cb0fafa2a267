"""`plugrad.layers` is `plugrad.networks.layers` now."""

import sys

from plugrad.deprecation import warn_renamed
from plugrad.networks import layers

warn_renamed("plugrad.layers", "plugrad.networks.layers")
sys.modules[__name__] = layers
