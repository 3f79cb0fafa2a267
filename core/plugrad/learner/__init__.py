"""The Learner and its parts, one file each.

- `learner`: the class Learner. `internals`: the Learner as the other files see it.
- Once per build: `build` (modules, device, connectors), `module_classes` (users' classes), `default_hooks` and
  `optimizer_registry` (the core's answers to hooks), `target_networks`, `buffers`, `expected_weights`. `modules` adds
  and removes modules later.
- Once per update: `update`, which uses `connectors`, `minibatches`, `data_parallel` (in groups) and `nonfinite`.
  `piece_per_module` is a connector piece for algorithms.
- Once per minibatch, or once when it is traced: `step`, `shape_check`; `metrics` collects what is reported.
- State: `components` (its parts), `state` (as nested dicts), `snapshot` (undo and digest),
  `checkpointing` (on disk).
- `acting`: actions and policies of a learner; `load_policy`: policies from a checkpoint.
"""

from plugrad.deprecation import loaded
from plugrad.learner.connectors import split_into_sequences
from plugrad.learner.learner import Learner, build_learner
from plugrad.learner.piece_per_module import PiecePerModule

__all__ = ["Learner", "PiecePerModule", "build_learner", "split_into_sequences"]

loaded(__name__)
