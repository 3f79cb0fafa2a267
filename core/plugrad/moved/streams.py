"""`plugrad.streams` is `plugrad.rng_streams` now."""

from plugrad.deprecation import moved_module

moved_module(__name__, "plugrad.rng_streams")
