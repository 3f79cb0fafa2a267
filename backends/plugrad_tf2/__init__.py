"""The TensorFlow 2 backend of plugrad.

`backend` is what the entry point names; `Tf2Learner` and `Tf2RLModule` are for code written in TensorFlow.

Files that all backends have, of the same names: `ops` (`Ops` with the framework), `variables`, `module` (variables
and flat vectors; RLModules), `differentiation` (gradients, and their sums over learners), `program` (an update as a
program), `optimizers` (users' own), `rows` (written into a replay buffer on a device), `versions` (names of the
framework that are not public), `learner`, `testing` (fixtures of `plugrad.testing.backend_suite`).

TensorFlow's own: `modes` (training and inference of Keras layers); `devices`; `direct_call` (calls of traced functions
without looking for the trace); `acting` (traced acting for networks that do not act in numpy); `scheduling` (XLA's
order on one thread); `xla_clusters`, `without_xla`, `xla_flags` (XLA in parts of a step; whether it compiles; flags
for a moment); `convolutions` (as matrix products for XLA); `compilation_cache` (programs on disk); `batched_program`
(many learners as one); `onnx_export`; `op_recorder` (finds wrong broadcasts).
"""

from plugrad_tf2 import backend
from plugrad_tf2.learner import Tf2Learner
from plugrad_tf2.module import Tf2RLModule

__all__ = ["Tf2Learner", "Tf2RLModule", "backend"]
