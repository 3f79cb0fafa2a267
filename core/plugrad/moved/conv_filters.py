"""`plugrad.conv_filters` is `plugrad.networks.conv_filters` now."""

from plugrad.deprecation import moved_module

moved_module(__name__, "plugrad.networks.conv_filters")
