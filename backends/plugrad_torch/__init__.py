"""The torch backend of plugrad.

`backend` is what the entry point names; `TorchLearner` and `TorchRLModule` are for code written in torch.

Files that all backends have, of the same names: `ops` (`Ops` with the framework), `variables`, `module` (variables
and flat vectors; RLModules), `differentiation` (gradients, and their sums over learners), `program` (an update as a
program), `optimizers` (users' own; Adam on the flat vector), `rows` (written into a replay buffer on a device),
`versions` (names of the framework that are not public), `learner`, `testing` (fixtures of
`plugrad.testing.backend_suite`).

torch's own: `auto_update` (eager, then recorded, then compiled); `step_recorder` and `recorded_step` (a step's
operations, repeated by torch's interpreter); `pure_step`, `tracing`, `untracked_tensors`, `scalars` (the step as a
function of tensors, as a graph, what modules keep beside their state, numbers computed once); `compiled_step`,
`compiled_loop`, `inductor` (programs of the graph and the compiler's options); `compilation_ahead`, `graph_data`
(compiling in another process); `cuda_graph`; `minibatch_gather`; `threads` (one for small steps); `devices`;
`sharding` (vectors of which each process keeps a part); `onnx_export`; `op_recorder` (finds wrong broadcasts).
"""

from plugrad_torch import backend
from plugrad_torch.learner import TorchLearner
from plugrad_torch.module import TorchRLModule

__all__ = ["TorchLearner", "TorchRLModule", "backend"]
