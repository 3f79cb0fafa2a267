"""`plugrad.lstm` is `plugrad.networks.lstm` now."""

import sys

from plugrad.deprecation import warn_renamed
from plugrad.networks import lstm

warn_renamed("plugrad.lstm", "plugrad.networks.lstm")
sys.modules[__name__] = lstm
