"""The Learner, and its parts in four packages.

- `learner`: the class Learner. `internals`: the Learner as the other files see it.
- `modules`: built once, added and removed later.
- `update`: from a batch to new weights. Begin with `update/run.py`.
- `state`: what is undone after an error, and what is saved.
- `acting`: actions and policies.
"""

from plugrad.learner.learner import Learner, build_learner
from plugrad.learner.update.connectors import PiecePerModule, split_into_sequences

__all__ = ["Learner", "PiecePerModule", "build_learner", "split_into_sequences"]
