"""`plugrad.random_module` is `plugrad.rl_module.random_module` now."""

import sys

from plugrad.deprecation import warn_renamed
from plugrad.rl_module import random_module

warn_renamed("plugrad.random_module", "plugrad.rl_module.random_module")
sys.modules[__name__] = random_module
