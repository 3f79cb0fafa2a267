"""`LearnerActor`: one learner of a group, in its own process.

An exception in a call does not end it: the exception is sent as the answer. It imports its backend itself, after it
has set the number of threads.
"""

import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from plugrad.batch import MultiAgentBatch
from plugrad.collective import Collective, Membership
from plugrad.episodes import num_env_steps
from plugrad.group.messages import Failure, Reply, make_failure
from plugrad.hooks.registry import load_collective
from plugrad.learner import Learner, build_learner
from plugrad.learner.state.components import COMPONENTS
from plugrad.learner.state.state import copy_values, digest, restore_values
from plugrad.learner.update.data_parallel import set_collective
from plugrad.learner.update.rehearsal import rehearse
from plugrad.types import COMPONENT_PLUGIN_STATE
from plugrad.workers.process import prepare_process


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


def _set_host() -> None:
    """Set PLUGRAD_HOST, unless it is set, to the address at which Ray reaches this machine."""
    from ray import util

    get_address: Callable[[], str] = util.get_node_ip_address
    os.environ.setdefault("PLUGRAD_HOST", get_address())


class LearnerActor:
    """The class of the actors that `WorkerGroup` starts.

    Args:
        rank: its rank in the group, until `contact` gives it another one.
        num_threads: see `prepare_process`.
        search_path: see `prepare_process`.
    """

    def __init__(self, rank: int, num_threads: int, search_path: list[str]) -> None:
        prepare_process(search_path, num_threads)
        _set_host()
        self._rank = rank
        self._committed = 0
        self._synced: tuple[bytes, Any] = (
            b"",
            None,
        )  # the config of the last sync: pickled, and the learner's own
        self._plugins: tuple[Any, ...] = ()
        self._learner: Learner | None = None
        self._collective: Collective | None = None

    def build(self, pickled_config: bytes, pickled_plugins: bytes) -> Reply:
        """Build the learner, with its own copies of the listeners."""

        def build() -> None:
            self._plugins = pickle.loads(pickled_plugins)
            self._learner = build_learner(pickle.loads(pickled_config), plugins=self._plugins)

        return self._reply(build)

    def contact(self, name: str, membership: Membership) -> Reply:
        """First step of connecting: leave the current collective and make this learner's end of another one.

        Args:
            name: the collective's name.
            membership: the learner's new rank and the number of learners; a single learner has no collective.

        Returns:
            A reply with what the other learners need for `enter`.
        """
        self._rank = membership.rank
        former, self._collective = self._collective, None
        if former is not None:
            former.close()

        def make() -> bytes:
            if membership.size == 1:
                return b""
            self._collective = load_collective(name)(membership)
            return self._collective.contact()

        return self._reply(make)

    def enter(self, contacts: Sequence[bytes]) -> Reply:
        """Second step of connecting: connect to the other learners.

        Args:
            contacts: what `contact` answered on all learners, in the order of ranks.

        Returns:
            A reply without a value.
        """

        def enter() -> None:
            learner = self._built_learner()
            if self._collective is not None:
                self._collective.enter(contacts)
            set_collective(learner, self._collective)

        return self._reply(enter)

    def call(
        self,
        number: int | None,
        timeout_s: float,
        method: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Reply:
        """Call a method of the learner.

        Args:
            number: the number of this change, if it is one; it is committed when the method returns.
            timeout_s: seconds to wait for other learners.
            method: name of the method.
            args: its positional arguments.
            kwargs: its named arguments.

        Returns:
            A reply with the method's value.
        """
        if self._collective is not None:
            self._collective.timeout_s = timeout_s

        def call() -> Any:
            learner = self._built_learner()
            with after_connectors(learner, args[0] if args else None):
                value = getattr(learner, method)(*args, **kwargs)
            self._committed = self._committed if number is None else number
            return value

        return self._reply(call)

    def run_connectors(self, args: tuple[Any]) -> tuple[Reply, tuple[ConnectedBatch | None]]:
        """Run the learner connectors on episodes, once for all learners; returns a reply and `(batch,)`."""
        batch: list[ConnectedBatch] = []
        reply = self._reply(lambda: batch.append(connect(self._built_learner(), *args)))
        return reply, (batch[0] if batch else None,)

    def abort(self, reason: str, epoch: int) -> None:
        """Stop waiting for other learners; called from another thread.

        Args:
            reason: the error's reason.
            epoch: the last epoch to abort; a later collective continues.
        """
        collective = self._collective
        if collective is not None and collective.membership.epoch <= epoch:
            collective.abort(reason)

    def get_status(self) -> Reply:
        """A reply without a value: rank, progress and digest."""
        return self._reply(lambda: None)

    def rehearse(self, size: int, args: tuple[Any], settings: Mapping[str, Any]) -> Reply:
        """Compile an update beforehand; see `plugrad.learner.update.rehearsal`.

        Args:
            size: number of learners in the group.
            args: `(batch,)`.
            settings: the other arguments of `Learner.update`.

        Returns:
            A reply without a value.
        """
        return self._reply(lambda: rehearse(self._built_learner(), size, *args, settings))

    def copy_sync_state(self, drops_gradients: bool) -> tuple[Reply, Any]:
        """Copy what makes another learner equal to this one: pickled config, state, last committed change.

        Args:
            drops_gradients: whether accumulated gradients are forgotten before: they are no part of the state, and
                those of a learner that is lost are missing. A standby may get the state beside them.

        Returns:
            `(reply, copy)`; the reply's value is the time that it took in seconds; it has no digest.
        """
        import cloudpickle

        start, copy, failure = perf_counter(), None, None
        try:
            learner = self._built_learner()
            if drops_gradients:
                learner.drop_gradients()
            copy = cloudpickle.dumps(learner.config), learner.get_state([*COMPONENTS]), self._committed
        except Exception as error:
            failure = self._make_failure(error)
        return Reply(self._rank, self._committed, "", perf_counter() - start, failure), copy

    def set_sync_state(self, sync_state: tuple[bytes, dict[str, Any], int]) -> Reply:
        """Become equal to the learner whose `copy_sync_state` returned this."""

        def become() -> None:
            pickled_config, state, committed = sync_state
            if not self._is_configured_as(pickled_config):
                self._learner = build_learner(pickle.loads(pickled_config), plugins=self._plugins)
                self._learner.collective = self._collective
            learner = self._built_learner()
            self._synced = pickled_config, learner.config
            learner.drop_gradients()
            learner.set_state(state)
            self._committed = committed

        return self._reply(become)

    def _is_configured_as(self, pickled_config: bytes) -> bool:
        """Whether the learner has this config, from which its modules, optimizers and programs are made."""
        import cloudpickle

        config = self._built_learner().config
        synced, own = self._synced  # two pickles of one config may differ in the order of a set
        return (config is own and pickled_config == synced) or pickled_config == cloudpickle.dumps(config)

    def _built_learner(self) -> Learner:
        assert self._learner is not None
        return self._learner

    def _reply(self, work: Callable[[], Any]) -> Reply:
        try:
            value, failure = work(), None
        except Exception as error:
            value, failure = None, self._make_failure(error)
        state = "" if self._learner is None else digest(self._learner)
        return Reply(self._rank, self._committed, state, value, failure)

    def _make_failure(self, error: Exception) -> Failure:
        """Leave the collective, so that no other learner waits for this one."""
        if self._collective is not None:
            self._collective.leave()
        return make_failure(error, self._rank, self._committed + 1)
