"""`plugrad.states` is `plugrad.batch.recurrent_state` now."""

from plugrad.deprecation import moved_module

moved_module(__name__, "plugrad.batch.recurrent_state")
