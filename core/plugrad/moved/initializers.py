"""`plugrad.initializers` is `plugrad.networks.initializers` now."""

from plugrad.deprecation import moved_module

moved_module(__name__, "plugrad.networks.initializers")
