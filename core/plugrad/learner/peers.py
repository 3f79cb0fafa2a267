"""`Peers`: a learner is one of several in processes that a cluster has started (`learners(launcher="env")`).

Every process runs the same program: it builds its learner, and calls `update` with rows or episodes of its own. An
update is that of one learner with all of them, in the order of ranks. Nobody leads: what the processes bring is
exchanged, and from then on each computes what one learner would, with its share of the rows of each minibatch.
"""

import logging
import pickle
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from platform import machine
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import numpy as np

from plugrad.batch import Batch, MultiAgentBatch
from plugrad.batch.forms import are_sequences, env_steps_of
from plugrad.batch.sequences import join_sequences
from plugrad.collective import Collective, Launcher, Membership, Place
from plugrad.errors import BatchError, CollectiveError, ConfigError, LearnerGroupDeadError, PlugradError
from plugrad.hooks.registry import choose_collective, load_collective, load_launcher
from plugrad.learner.state.state import digest
from plugrad.learner.update.checks import columns_to_numpy, own_columns
from plugrad.learner.update.data_parallel import set_collective
from plugrad.types import Array, ModuleID

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

log = logging.getLogger("plugrad")
ACTIONS = ("actions",)
"""What the random stream is called that samples actions."""
_joined: Counter[str] = Counter()
"""How many learners of this process have joined others, by launcher: those of one number are together."""


@cache
def _launcher_of_this_process(name: str, timeout_s: float) -> Launcher:
    launcher = load_launcher(name)()
    launcher.connect(timeout_s)
    return launcher


class Peers:
    """The learners that a learner is one of.

    Args:
        learner: with its modules and optimizers; afterwards it has the state of learner 0 and a collective.

    Attributes:
        rank: rank of this process, from 0.
        size: number of processes.
        collective: name of the collective that sums gradients; None for a single process.
        own_stream: what else the stream is called with which this learner samples actions; that of learner 0 is the one
            of a learner that is alone.

    Raises:
        ConfigError: this process was not started by the launcher, `num_learners` is another number than that of the
            processes, `undo=False`, or the processes have other networks.
        LearnerTimeoutError: a process did not come within `build_timeout_s`; the message names it.
    """

    def __init__(self, learner: "Learner") -> None:
        config = learner.config
        launcher = _launcher_of_this_process(config.launcher, config.build_timeout_s)
        if config.num_learners not in (0, launcher.size):
            raise ConfigError(
                f"num_learners={config.num_learners}, and launcher={config.launcher!r} has started {launcher.size} "
                "processes, each with one learner: leave num_learners out",
                field="num_learners",
            )
        if not config.undo:
            raise ConfigError(
                f"undo=False: learners of launcher={config.launcher!r} undo an update together: type "
                "config.training(undo=True)",
                field="undo",
            )
        self.rank, self.size = launcher.rank, launcher.size
        self.own_stream = (f"learner {self.rank}",) if self.rank else ()
        self._learner = learner
        self._launcher = launcher
        self.collective: str | None = None
        self._epoch = 0
        self._timeout_s = config.build_timeout_s  # until an update is compiled
        self._lost: PlugradError | None = None
        _joined[config.launcher] += 1
        self._name = f"learner {_joined[config.launcher]}"
        if self.size > 1:
            self._connect()
            try:
                self._begin_equal()
                self._divide()
            except BaseException:
                self.close()
                raise

    # --- what is done together ----------------------------------------------------------------------------------

    def union(
        self, batch: Any, episodes: Sequence[Any] | None, **settings: Any
    ) -> tuple[MultiAgentBatch | None, list[Any] | None]:
        """What all processes bring to an update: rows and episodes in the order of ranks.

        Args:
            batch: of this process, in any form of a batch; None or `{}`: none.
            episodes: of this process, or None.
            **settings: what must be the same in all processes.

        Returns:
            `(batch, episodes)`, one of which is None.

        Raises:
            BatchError: this process brings both, or processes bring other columns than others.
            ConfigError: a setting is not the same in all processes.
            CollectiveError: another process raised an error, ended, or its learner is no longer equal to this one.
            LearnerTimeoutError: another process did not come.
        """
        own = _Brought(None, 0, episodes, settings, self._digest())
        failure: Exception | None = None
        try:
            if batch is not None and episodes is not None:
                raise BatchError("update() takes a batch or episodes; found both")
            if batch is not None:
                own = replace(own, columns=self._columns(batch), env_steps=int(env_steps_of(batch)))
        except Exception as error:  # the others are told: they would wait
            failure = error
            own = replace(own, failure=f"{type(error).__name__}: {error}")
        found: list[_Brought] = self._gather(own)
        if failure is not None:
            raise failure
        self._check_same(found)
        lists = [each.episodes for each in found if each.episodes is not None]
        with_rows = [each for each in found if each.columns]
        if with_rows and any(lists):
            raise BatchError("update(): some processes bring a batch, and others episodes")
        if lists and not with_rows:
            return None, [episode for each in lists for episode in each]
        return _joined_batch(self._learner, with_rows), None

    def _check_same(self, found: Sequence["_Brought"]) -> None:
        own = found[self.rank]
        for rank, each in enumerate(found):
            if each.failure:
                raise CollectiveError(f"learner {rank} cannot use its rows: {each.failure}", rank=rank)
            if each.settings.keys() != own.settings.keys():
                raise ConfigError(
                    f"learner {self.rank} and learner {rank} call different methods (update, forward_backward, "
                    "optim_step): call the same in all processes, in the same order"
                )
            for name, value in own.settings.items():
                if each.settings[name] != value:
                    raise ConfigError(
                        f"{name}={value!r} on learner {self.rank}, and {name}={each.settings[name]!r} on learner "
                        f"{rank}: make the same calls, with the same settings, in all processes",
                        field=name,
                    )
            if each.state != found[0].state:
                raise CollectiveError(
                    f"learner {rank} is not equal to learner 0: what changes a learner, such as set_state(), "
                    "set_weights(), add_module() and restore_from_path(), has to be called in all processes",
                    rank=rank,
                )

    def has_updated(self) -> None:
        """An update is done, so its program is compiled: from now on `timeout_s` applies."""
        self._timeout_s = self._learner.config.timeout_s
        self._divide()

    @contextmanager
    def once(self) -> Iterator[bool]:
        """Around what one process does for all, such as writing a checkpoint.

        Yields:
            Whether it is this one.

        Raises:
            CollectiveError: the other one raised an error.
        """
        try:
            yield self.rank == 0
            self._gather(None)
            self._divide()  # what was put together to be saved
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Make the others' calls raise an error: this process has raised one."""
        collective = self._learner.collective
        if collective is not None:
            collective.leave()
            self._divide()  # in all, wherever each was: the next reading of a vector is one of all processes

    @property
    def is_divided(self) -> bool:
        """Whether the learner is divided over the processes, so that all have to read its state together."""
        return self.size > 1 and self._learner.config.sharding is not None

    def _divide(self) -> None:
        """Divide what the learner keeps between updates, with `sharding`."""
        divide = self._learner.backend_info.divide
        if self.is_divided and divide is not None:
            divide(self._learner, self.rank, self.size, self._connected)

    def close(self) -> None:
        """Leave for good."""
        collective, self._learner.collective = self._learner.collective, None
        self._lost = self._lost or LearnerGroupDeadError("this learner was shut down")
        if collective is not None:
            collective.close()

    # --- exchange -----------------------------------------------------------------------------------------------

    def _gather(self, value: Any) -> list[Any]:
        """The values of all processes in the order of ranks."""
        if self.size == 1:
            return [value]
        collective = self._connected()
        own = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        words = -(-len(own) // 8)
        sizes = np.zeros(self.size, np.int64)
        sizes[self.rank] = words
        ends = np.cumsum(collective.all_reduce(sizes))
        part = slice(ends[self.rank] - words, ends[self.rank])
        parts = np.zeros(ends[-1], np.int64)  # the others add zeros
        parts[part] = np.frombuffer(own.ljust(8 * words, b"\0"), np.int64)
        parts = collective.all_reduce(parts)
        return [pickle.loads(each.tobytes()) for each in np.split(parts, ends[:-1])]

    def _connected(self) -> Collective:
        """The collective; after a failure, another one."""
        if self._lost is not None:
            raise self._lost
        collective = self._learner.collective
        if collective is None or collective.failure is not None:
            try:
                collective = self._connect()
            except PlugradError as error:
                self._lost = LearnerGroupDeadError(
                    f"{error}. The learners cannot go on: start the processes again, from the last checkpoint",
                    **error.facts,
                )
                raise self._lost from error
        collective.timeout_s = self._timeout_s
        return collective

    def _connect(self) -> Collective:
        """Join the others in a new collective."""
        config, launcher = self._learner.config, self._launcher
        if self._learner.collective is not None:
            self._learner.collective.close()
        self._epoch += 1
        step = f"{self._name}/{self._epoch}"
        deadline = self._timeout_s
        key = token_hex(16) if self.rank == 0 else ""
        met = launcher.exchange(f"{step}/hosts", f"{_this_machine()} {key}".encode(), deadline)
        hosts, keys = zip(*(each.decode().split(" ") for each in met), strict=True)
        place = Place(self.size, len({*hosts}), machine(), config.num_gpus_per_learner)
        name = choose_collective(config.collective, place)
        collective = load_collective(name)(
            Membership(self.rank, self.size, self._epoch, keys[0], self._timeout_s)
        )
        try:
            collective.enter(launcher.exchange(f"{step}/contacts", collective.contact(), deadline))
        except BaseException:
            collective.close()
            raise
        if self.collective is None:
            self.collective = name
            log.info("learner %d of %d sums gradients by %r", self.rank, self.size, name)
        set_collective(self._learner, collective)
        return collective

    def _begin_equal(self) -> None:
        """Take the state of learner 0 where a module draws weights of its own, or there is no seed."""
        states = self._gather(self._digest())
        if len({*states}) > 1:
            self._check_networks()
            state = self._gather(self._learner.get_state() if self.rank == 0 else None)[0]
            self._learner.set_state(state)

    def _check_networks(self) -> None:
        own = {
            f"{module_id}/{name}": f"{value.dtype.name}{[*value.shape]}"
            for module_id, module in self._learner.module.items()
            for name, value in module.get_state().items()
        }
        first, *others = self._gather(own)
        for rank, each in enumerate(others, 1):
            for name in first | each:
                found, expected = (weights.get(name, "missing") for weights in (each, first))
                if found != expected:
                    raise ConfigError(
                        f"learner {rank} has other networks than learner 0: {name} is {found}, and {expected} on "
                        "learner 0: build learners of the same config in all processes",
                        rank=rank,
                    )

    def _digest(self) -> str:
        """Of all but the streams that sample actions: each process acts as often as it likes."""
        learner, streams = self._learner, self._learner.streams
        learner.streams = {
            name: each for name, each in streams.items() if ACTIONS[0] not in name.split("/")[1:]
        }
        try:
            return digest(learner)
        finally:
            learner.streams = streams

    def _columns(self, batch: Any) -> dict[ModuleID, dict[str, Array]]:
        learner = self._learner
        columns = own_columns(learner, learner._update_run.columns(batch, None))
        return {module_id: columns_to_numpy(learner, each) for module_id, each in columns.items()}


def _this_machine() -> str:
    """A name that no other machine has: many are called localhost, so it also says when this one was started."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()}/{boot.read_text().strip() if boot.exists() else ''}"


@dataclass(frozen=True)
class _Brought:
    """What a process brings to an update."""

    columns: Batch | None
    env_steps: int
    episodes: Sequence[Any] | None
    settings: Mapping[str, Any]
    state: str
    failure: str = ""


def _joined_batch(learner: "Learner", found: Sequence[_Brought]) -> MultiAgentBatch:
    """Rows below each other.

    Raises:
        BatchError: a module has other columns, or columns of other shapes, in another batch.
    """
    columns = {}
    batches = [each.columns or {} for each in found]
    for module_id in dict.fromkeys(each for batch in batches for each in batch):
        parts = [batch[module_id] for batch in batches if batch.get(module_id)]
        if not parts:
            continue
        module = learner.module.get(module_id)
        has_steps = module is not None and any(are_sequences(part, module) for part in parts)
        for part in parts[1:]:
            _check_alike(module_id, parts[0], part, leading=2 if has_steps else 1)
        if has_steps:
            columns[module_id] = join_sequences(module_id, parts)
        else:
            columns[module_id] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return MultiAgentBatch(columns, sum(each.env_steps for each in found))


def _check_alike(
    module_id: ModuleID, first: Mapping[str, Array], other: Mapping[str, Array], *, leading: int
) -> None:
    if first.keys() != other.keys():
        raise BatchError(
            f"module {module_id!r}: one process brings the columns {sorted(first)}, another {sorted(other)}",
            module_id=module_id,
        )
    for name, values in first.items():
        here, there = np.shape(values), np.shape(other[name])
        if len(here) != len(there) or here[leading:] != there[leading:]:
            raise BatchError(
                f"module {module_id!r}, column {name!r}: one process brings shape {list(here)}, another "
                f"{list(there)}",
                module_id=module_id,
                column=name,
            )
