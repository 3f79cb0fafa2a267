"""`plugrad.names` is `plugrad.importing.names` now."""

from plugrad.deprecation import moved_module

moved_module(__name__, "plugrad.importing.names")
