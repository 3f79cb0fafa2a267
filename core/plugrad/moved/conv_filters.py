"""`plugrad.conv_filters` is `plugrad.networks.conv_filters` now."""

import sys

from plugrad.deprecation import warn_renamed
from plugrad.networks import conv_filters

warn_renamed("plugrad.conv_filters", "plugrad.networks.conv_filters")
sys.modules[__name__] = conv_filters
