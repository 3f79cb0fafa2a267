"""`plugrad.streams` is `plugrad.rng_streams` now."""

import sys

from plugrad import rng_streams
from plugrad.deprecation import warn_renamed

warn_renamed("plugrad.streams", "plugrad.rng_streams")
sys.modules[__name__] = rng_streams
