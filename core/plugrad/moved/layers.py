"""`plugrad.layers` is `plugrad.networks.layers` now."""

from plugrad.deprecation import moved_module

moved_module(__name__, "plugrad.networks.layers")
