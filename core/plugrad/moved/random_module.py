"""`plugrad.random_module` is `plugrad.rl_module.random_module` now."""

from plugrad.deprecation import moved_module

moved_module(__name__, "plugrad.rl_module.random_module")
