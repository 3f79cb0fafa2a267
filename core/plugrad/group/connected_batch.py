"""`ConnectedBatch`: what learner 0's connectors made of episodes, for all learners of a group.

The counters, random streams and plugins' own state that the connectors moved are part of the change: they take effect
with the update, and not at all if it fails.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from plugrad.batch import MultiAgentBatch
from plugrad.episodes import num_env_steps
from plugrad.learner import Learner
from plugrad.learner.state.state import copy_values, restore_values
from plugrad.types import COMPONENT_PLUGIN_STATE


@dataclass
class ConnectedBatch(MultiAgentBatch):
    """A batch with the counters and random streams as they are after the connectors.

    Args:
        values: from `copy_values`, and the plugins' own state.
    """

    values: Mapping[str, Any] = field(kw_only=True)


def _copied(learner: Learner) -> dict[str, Any]:
    return {**copy_values(learner), **learner.get_state(COMPONENT_PLUGIN_STATE)}


def connect(learner: Learner, episodes: Sequence[Any]) -> ConnectedBatch:
    """Run the learner connectors; the learner's counters and random streams are afterwards as before.

    Args:
        learner: a built learner.
        episodes: see `Learner.run_connectors`.

    Returns:
        The batch.
    """
    before = _copied(learner)
    columns = learner.run_connectors(episodes)
    after = _copied(learner)
    restore_values(learner, before)
    return ConnectedBatch(columns, num_env_steps(episodes), values=after)


@contextmanager
def after_connectors(learner: Learner, batch: Any) -> Iterator[None]:
    """Give a learner the counters and random streams of a `ConnectedBatch`; take them back if the block raises.

    Args:
        learner: a built learner.
        batch: any batch; one that no connectors made changes nothing.
    """
    if not isinstance(batch, ConnectedBatch):
        yield
        return
    before = _copied(learner)
    restore_values(learner, batch.values)
    try:
        yield
    except BaseException:
        restore_values(learner, before)
        raise
