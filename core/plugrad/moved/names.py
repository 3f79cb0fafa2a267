"""`plugrad.names` is `plugrad.importing.names` now."""

import sys

from plugrad.deprecation import warn_renamed
from plugrad.importing import names

warn_renamed("plugrad.names", "plugrad.importing.names")
sys.modules[__name__] = names
