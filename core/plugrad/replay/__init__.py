"""Replay buffers in numpy, and the transitions that they hold.

`buffer` draws rows uniformly, `prioritized` by their TD errors, with a `sum_tree`. `n_step` makes rows of episodes.
`storage` holds rows: large observations as `observation_rows`, whose parts keep their dtypes and share equal `frames`.
`size` says what a full buffer takes, and `machine_memory` what there is.
`circular` hands out whole batches a few times each. `settings` has what `replay_buffer_config` may hold.

Source of experience replay: Lin 1992, doi:10.1007/BF00992699.
"""

from plugrad.replay.buffer import ReplayBuffer
from plugrad.replay.circular import CircularBuffer
from plugrad.replay.n_step import NStepTransitions, transitions
from plugrad.replay.prioritized import PrioritizedReplayBuffer

__all__ = ["CircularBuffer", "NStepTransitions", "PrioritizedReplayBuffer", "ReplayBuffer", "transitions"]
