"""The JAX backend of plugrad.

`backend` is what the entry point names; `JaxLearner` and `JaxRLModule` are for code written in JAX.
"""

from plugrad_jax import backend
from plugrad_jax.learner import JaxLearner
from plugrad_jax.module import JaxRLModule

__all__ = ["JaxLearner", "JaxRLModule", "backend"]
