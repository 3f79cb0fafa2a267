"""`plugrad.sequences` is `plugrad.batch.sequences` now."""

from plugrad.deprecation import moved_module

moved_module(__name__, "plugrad.batch.sequences")
