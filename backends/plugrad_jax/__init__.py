"""The JAX backend of plugrad.

`backend` is what the entry point names; `JaxLearner` and `JaxRLModule` are for code written in JAX.

Files that all backends have, of the same names: `ops` (`Ops` with the framework), `variables`, `module` (variables
and flat vectors; RLModules), `differentiation` (gradients, and their sums over learners), `program` (an update as a
program), `optimizers` (users' own), `rows` (written into a replay buffer on a device), `versions` (names of the
framework that are not public), `learner`, `testing` (fixtures of `plugrad.testing.backend_suite`).

JAX's own: `conversion` (batches as tensors); `layers` (layers of `flax.nnx` in a module); `devices`; `sharding`;
`compilation_cache` (programs on disk); `batched_program` (many learners as one).
"""

from plugrad_jax import backend
from plugrad_jax.learner import JaxLearner
from plugrad_jax.module import JaxRLModule

__all__ = ["JaxLearner", "JaxRLModule", "backend"]
