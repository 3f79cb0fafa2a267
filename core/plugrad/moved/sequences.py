"""`plugrad.sequences` is `plugrad.batch.sequences` now."""

import sys

from plugrad.batch import sequences
from plugrad.deprecation import warn_renamed

warn_renamed("plugrad.sequences", "plugrad.batch.sequences")
sys.modules[__name__] = sequences
