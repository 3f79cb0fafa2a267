"""`plugrad.states` is `plugrad.batch.recurrent_state` now."""

import sys

from plugrad.batch import recurrent_state
from plugrad.deprecation import warn_renamed

warn_renamed("plugrad.states", "plugrad.batch.recurrent_state")
sys.modules[__name__] = recurrent_state
