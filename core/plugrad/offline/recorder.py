"""`EpisodeRecorder`: whole episodes on disk, written while training samples them."""

import logging
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import gymnasium as gym

from plugrad.checkpoint import list_saves, load_checkpoint
from plugrad.episodes import SingleAgentEpisode, concat_chunks, masks_of, own_episode
from plugrad.offline.episode_data import save_episodes

RECORDING: Final = "recording"
NUM_RECORDED: Final = "num_recorded"
_STEPS: Final = ("observations", "actions", "rewards")

_log = logging.getLogger("plugrad")


class EpisodeRecorder:
    """Writes the whole episodes among the sampled ones as parts of a data set.

    Episodes wait in memory until there are enough for a part. An episode that is cut off, such as by the end of the
    run, is never written. Columns of the policy, such as `action_logp`, are left out; action masks are kept.

    A run that goes on from a checkpoint samples again what it had sampled after that checkpoint. What is on disk from
    then is not written twice.

    Args:
        path: the directory of the data set; what is in it stays.
        observation_space: of the episodes.
        action_space: of the episodes.
        max_rows_per_file: steps of one part; an episode is never divided.
        max_rows: steps of all parts together, those in the directory before not counted; None: no limit.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        max_rows_per_file: int = 10_000,
        max_rows: int | None = None,
    ) -> None:
        self._path = path
        self._spaces = {"observation_space": observation_space, "action_space": action_space}
        self._max_rows_per_file = max_rows_per_file
        self._max_rows = max_rows
        self._recording = uuid4().hex
        self._running: dict[str, list[SingleAgentEpisode]] = {}
        self._waiting: list[SingleAgentEpisode] = []
        self._num_ended = 0
        self._num_on_disk = 0
        self._num_rows = 0
        self._is_full = False

    def add(self, chunks: Iterable[SingleAgentEpisode], *, of: str = "") -> None:
        """Take the episodes and chunks of one `sample()`.

        Args:
            chunks: of the sample. A running episode that has none in it was cut off; one whose beginning or middle is
                missing is not written.
            of: how the ids of all episodes of the env runner begin that sampled; episodes of others run on.

        Raises:
            CheckpointError: a part was due, and the disk refused it.
        """
        running: dict[str, list[SingleAgentEpisode]] = {}
        for chunk in map(own_episode, chunks):
            id_ = str(chunk.id_)
            before = running.pop(id_, None) or self._running.get(id_, [])
            if chunk.t_started not in (None, sum(map(len, before))):
                continue
            parts = [*before, replace(chunk, extra_model_outputs=masks_of(chunk))]
            if chunk.is_done:
                self._end(parts)
            else:
                running[id_] = parts
        others = {id_: parts for id_, parts in self._running.items() if not id_.startswith(of)}
        self._running = others | running
        if sum(map(len, self._waiting)) >= self._max_rows_per_file:
            self.flush()

    def flush(self) -> None:
        """Write the episodes that wait, if there are any.

        Raises:
            CheckpointError: the disk refused; the episodes wait on.
        """
        if not self._waiting:
            return
        about = {RECORDING: self._recording, NUM_RECORDED: self._num_ended}
        save_episodes(self._path, self._waiting, **self._spaces, about=about)
        self._waiting = []

    def _end(self, parts: list[SingleAgentEpisode]) -> None:
        self._num_ended += 1
        if self._is_full or self._num_ended <= self._num_on_disk:
            return
        num_rows = self._num_rows + sum(map(len, parts))
        if self._max_rows is not None and num_rows > self._max_rows:
            self._is_full = True
            _log.warning("%s: %d steps are recorded; no more are", self._path, self._num_rows)
            return
        self._num_rows = num_rows
        self._waiting.append(concat_chunks(parts))

    def get_state(self) -> dict[str, Any]:
        """What `resumed` needs to go on: running episodes, and how many have ended. Call `flush` before."""
        running = {id_: concat_chunks(parts) for id_, parts in self._running.items()}
        return {
            RECORDING: self._recording,
            "num_ended": self._num_ended,
            "is_full": self._is_full,
            "running": {
                id_: {name: getattr(each, name) for name in _STEPS}
                | {"module_id": each.module_id, "extra_model_outputs": dict(each.extra_model_outputs)}
                for id_, each in running.items()
            },
        }

    def resumed(self, state: Mapping[str, Any], *, new_episodes: bool = False) -> "EpisodeRecorder":
        """A recorder that goes on from what `get_state` returned: what was written after it is not written again.

        Args:
            state: of `get_state`.
            new_episodes: the episodes to come are others than those that followed this state before.
        """
        recorder = copy(self)
        recorder._recording = str(state[RECORDING])
        recorder._num_ended, recorder._is_full = int(state["num_ended"]), bool(state["is_full"])
        recorder._waiting = []
        recorder._running = {
            id_: [SingleAgentEpisode(**columns, id_=id_)] for id_, columns in state["running"].items()
        }
        parts = list_saves(self._path) if Path(self._path).is_dir() else []
        written = [load_checkpoint(part).metadata for part in parts]
        own = [each for each in written if each.get(RECORDING) == recorder._recording]
        recorder._num_on_disk = max((each[NUM_RECORDED] for each in own), default=0)
        recorder._num_rows = sum(each["num_steps"] for each in own)
        if new_episodes:
            recorder._num_ended = max(recorder._num_ended, recorder._num_on_disk)
        return recorder
