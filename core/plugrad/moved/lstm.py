"""`plugrad.lstm` is `plugrad.networks.lstm` now."""

from plugrad.deprecation import moved_module

moved_module(__name__, "plugrad.networks.lstm")
