"""`RemoteLearners`: a group's learners as Ray actors, called together, kept equal, and restored after a fault.

The driver numbers every change. Every reply of a learner has the number of its last change and a digest of its state.
An error of the user's code undoes the change on all learners and is raised here. A learner that died or is stuck is
replaced. The learner that has applied the most changes gives its state to the others; the change is repeated if that
learner had not applied it. So no update is lost and none is applied twice.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from plugrad.config import Config
from plugrad.errors import CollectiveError, ConfigError, LearnerGroupDeadError
from plugrad.group.messages import Replies, exchange_failure, raise_failures
from plugrad.group.recovery import RecoveringLearners
from plugrad.group.worker_group import WorkerGroup, place_of
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.registry import choose_collective
from plugrad.learner import Learner
from plugrad.learner.modules.build import check_expected_weights, with_spaces
from plugrad.rng_streams import fresh_seed
from plugrad.types import ModuleID
from plugrad.workers.ray_cluster import get_ray, put

# --- `_compile_key`: if keys are equal, an update needs no new compilation, and `timeout_s` applies to it ---


def _compile_key(batch: Any, settings: Mapping[str, Any]) -> Any:
    """A hashable key of everything that a compiled program may depend on."""
    sizes = tuple(sorted((name, value) for name, value in settings.items() if isinstance(value, int)))
    modules = getattr(batch, "policy_batches", batch)
    if not isinstance(modules, Mapping):
        return "episodes", sizes
    return sizes, tuple(_column_key(str(name), each) for name, each in modules.items())


def _column_key(name: str, values: Any) -> Any:
    if isinstance(values, Mapping):
        return name, tuple(_column_key(str(column), each) for column, each in values.items())
    try:
        rows, *rest = np.shape(values) or (0,)
    except ValueError:  # lists of different lengths: the learners refuse them and say where
        return name, "no array"
    return name, tuple(rest), rows.bit_length()


# --- remote learners ---

REPEATS = 2
"""How often a change is repeated if only the exchange between learners failed."""
log = logging.getLogger("plugrad")


class RemoteLearners(RecoveringLearners):
    """`config.num_learners` learners in Ray actors, equal in everything but their rank.

    Args:
        config: an `AlgorithmConfig` with spaces or an environment.
        plugins: listener objects; each learner has copies.

    Attributes:
        version: a number that changes after each call that may have changed the learners' state.

    Raises:
        Exception: what building a learner raised.
        LearnerTimeoutError: they were not built within `build_timeout_s`.
    """

    is_remote = True

    def __init__(self, config: Config, plugins: Sequence[Any] = ()) -> None:
        config = with_spaces(config)
        check_expected_weights(config)  # before processes are started
        if config.num_learners > 1:
            # it is not known yet where the learners will be: assume one machine
            choose_collective(config.collective, place_of(config, config.num_learners, 1))
        if config.seed is None:  # all learners must draw the same numbers
            config = config.debugging(seed=fresh_seed() % 2**31)
        super().__init__(WorkerGroup(get_ray(f"num_learners={config.num_learners}"), config, plugins))
        self._last_number = 0
        self.version = 0
        try:
            self._build()
        except BaseException:
            self.shutdown()
            raise

    def __len__(self) -> int:
        return len(self._workers)

    def get_stats(self) -> dict[str, Any]:
        """See `LearnerGroup.get_stats`."""
        return {"collective": self._workers.collective, "standby_ready": self._workers.standbys.count_ready()}

    # --- calls --------------------------------------------------------------------------------------------------

    def update(
        self, batch: Any, episodes: Sequence[Any] | None, settings: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Call `Learner.update` on all learners, like `call_all`.

        Args:
            batch: the batch, or None.
            episodes: episodes instead of a batch, or None; learner 0 runs the connectors.
            settings: the other arguments.

        Returns:
            The results of each learner in rank order.

        Raises:
            Exception: see `call_all`.
        """
        if (batch is None) == (episodes is None):
            return self.call_all(
                "update", batch, episodes=episodes, **settings
            )  # the learners raise the error
        with self._count_change():
            return self._update(batch if episodes is None else episodes, settings, episodes is not None)

    def _update(self, data: Any, settings: Mapping[str, Any], is_episodes: bool) -> list[dict[str, Any]]:
        key = _compile_key(data, settings)

        def timeout_s() -> float:  # a learner that is restarted meanwhile has to compile the update
            return float(self.config.timeout_s if key in self._compiled else self.config.build_timeout_s)

        args = batch = put(self._workers.ray, (data,))

        def make_args() -> Any:
            nonlocal batch
            batch = self._run_connectors(args, timeout_s()) if is_episodes else args
            return batch

        results = self._apply("update", make_args, settings, timeout_s)
        self._compiled.add(key)
        self._workers.standbys.remember(key, batch, settings, len(self))
        return results

    def run_verb(self, verb: str, args: tuple[Any, ...], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Call `forward_backward` or `optim_step` on all learners, like `call_all`.

        Accumulated gradients are no part of the state, so those of a learner that is lost meanwhile are lost: the next
        verb, or this one, raises an error, and all learners are as after their last step.

        Args:
            verb: the method's name.
            args: its positional arguments.
            settings: its named arguments.

        Returns:
            The results of each learner in rank order.

        Raises:
            UnfinishedStepError: gradients were lost.
            Exception: see `call_all`.
        """
        key = (verb, _compile_key(args[0], {}) if args else None, str(settings.get("loss")))
        given = put(self._workers.ray, (run_verb, verb, *args))
        kwargs: dict[str, Any] = {"settings": settings}

        def make_args() -> Any:
            kwargs["after"] = self._open_calls
            return given

        def timeout_s() -> float:
            return float(self.config.timeout_s if key in self._compiled else self.config.build_timeout_s)

        with self._count_change():
            self._verb_runs = True
            try:
                results = self._apply("apply", make_args, kwargs, timeout_s)
            except BaseException:
                self._open_calls = 0  # the learners have dropped them
                raise
            finally:
                self._verb_runs = False
            if verb == "optim_step":
                self._open_calls = 0
            elif self._open_calls >= 0:
                self._open_calls += 1
            self._compiled.add(key)
            return results

    def drop_gradients(self) -> None:
        """Forget what `forward_backward` has accumulated on all learners."""
        self._open_calls = 0
        self.call_each("drop_gradients")

    def call_all(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method that changes the state: it takes effect exactly once on all learners, or on none.

        Args:
            method: of `Learner`.
            *args, **kwargs: its arguments.

        Returns:
            Its values in rank order.

        Raises:
            Exception: what a learner raised.
            LearnerGroupDeadError: learners died and cannot be replaced.
            LearnerTimeoutError: learners do not answer and cannot be replaced.
        """
        given = put(self._workers.ray, args)
        timeout_s = self.config.build_timeout_s if method == "add_module" else self.config.timeout_s
        with self._count_change():
            values = self._apply(method, lambda: given, kwargs, lambda: timeout_s)
            self._workers.config = self.call_one("apply", _get_config)
            if method in ("add_module", "remove_module", "restore_from_path"):
                self._compiled.clear()
                self._workers.standbys.forget(other_config=True)
        return values

    def call_each(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method on each learner; after a fault it may run again on some learners.

        Args:
            method: of `Learner`.
            *args, **kwargs: its arguments.

        Returns:
            Its values in rank order.

        Raises:
            Exception: see `call_all`.
        """
        with self._count_change():  # it is not known what the method changes
            replies: Replies = {}
            self._check_alive()
            while missing := [rank for rank in self._workers.ranks if rank not in replies]:
                new, lost = self._workers.call_learners(method, args, kwargs, ranks=missing)
                replies |= new
                self._recover(lost)
                if lost and self.config.on_failure == "shrink":
                    replies = {}  # the remaining learners have other ranks now
            raise_failures(replies)
            return [replies[rank].value for rank in sorted(replies)]

    def call_one(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method on one learner; works even in a group that failed permanently, if a learner is left.

        Args:
            method: of `Learner`.
            *args, **kwargs: its arguments.

        Returns:
            Its value.

        Raises:
            Exception: see `call_all`.
        """
        while True:
            if not self._workers.synced:
                self._check_alive()
            first = self._workers.synced[0]
            replies, lost = self._workers.call_learners(method, args, kwargs, ranks=[first])
            if not lost:
                raise_failures(replies)
                return replies[first].value
            self._recover(lost)

    def resize(self, num_learners: int) -> None:
        """Change the number of learners; see `LearnerGroup.resize`.

        Args:
            num_learners: 1 or more.

        Raises:
            ConfigError: it is not such a number, or the collective cannot be used with it.
            Exception: a further learner could not be built; the group is unchanged.
        """
        config = self.config.changed(num_learners=num_learners)
        self.call_one("apply", _check_none_open, f"resize({num_learners})")
        if not num_learners:
            raise ConfigError(
                "resize(0): a group of remote learners has one or more; for a learner in this process save the group "
                "and open it with LearnerGroup.from_checkpoint(path, num_learners=0)",
                field="num_learners",
            )
        if num_learners > 1:
            choose_collective(config.collective, place_of(config, num_learners, 1))
        with self._count_change():
            self._connect()
            self._recover(self._workers.call("get_status")[1])
            self._grow(num_learners)
            self._workers.dismiss(range(num_learners, len(self)))
            self._workers.config = config
            self._workers.is_connected = False
            self._compiled.clear()
            self.call_each("apply", _set_num_learners, num_learners)
            self._connect()

    def _grow(self, num_learners: int) -> None:
        """Start further learners with the group's state; if one cannot be built, the group is unchanged."""
        while ranks := range(len(self), num_learners):
            try:
                lost = self._workers.start(ranks) or self._workers.sync_from(0, ranks)
                if broken := [each for each in lost if each.rank in ranks]:
                    raise self._workers.build_error(broken[0])
            except BaseException:
                self._workers.dismiss(ranks)
                raise
            if not lost:
                return
            self._workers.dismiss(ranks)
            self._recover(lost)  # an existing learner was lost: recover, then try again

    def shutdown(self) -> None:
        """End the actors; calling it again does nothing. A call that runs meanwhile in another thread fails."""
        self._is_shut_down = True
        self._error = self._error or LearnerGroupDeadError("this LearnerGroup was shut down: build a new one")
        if len(self._workers):
            self._workers.shutdown()

    @contextmanager
    def _count_change(self) -> Iterator[None]:
        """Change `version` afterwards, even after an error, which may have come late; then update standbys."""
        try:
            yield
        finally:
            self.version += 1
            if self._error is None:
                self._workers.follow()

    # --- one change on all --------------------------------------------------------------------------------------

    def _apply(
        self,
        method: str,
        make_args: Callable[[], Any],
        kwargs: Mapping[str, Any],
        timeout_s: Callable[[], float],
    ) -> list[Any]:
        """Apply one change to all learners exactly once, or to none; returns the method's values."""
        self._last_number += 1
        number = self._last_number
        repeats = REPEATS
        while True:
            self._connect()
            args = make_args()
            if not self._workers.is_connected:  # a learner was lost meanwhile
                continue
            replies, lost = self._workers.call_learners(
                method, args, kwargs, number=number, timeout_s=timeout_s()
            )
            if not lost and repeats and (broken := exchange_failure(replies)):
                self._check_alive()
                log.warning("%s: %r is repeated over new connections", broken, method)
                repeats -= 1
                self._take_back(number, replies)
                continue
            if not lost:
                return self._commit(number, method, replies)
            self._recover(lost)
            if self._committed == number:
                return self._values_after_recovery(replies, number)

    def _commit(self, number: int, method: str, replies: Replies) -> list[Any]:
        """Return the values of all learners; or undo the change on those that applied it, and raise the error."""
        if any(reply.failure for reply in replies.values()):
            self._take_back(number, replies)
            raise_failures(replies)
        are_equal = _are_equal(replies)
        self._committed = number
        self._workers.digest = replies[0].digest
        if not are_equal:
            self._sync_from(0)
            if method == "update" or self._verb_runs:
                raise CollectiveError(
                    "after this update the learners' states differ, and all have that of learner 0 now: an override "
                    "changes them by numbers that are not reduced over the learners"
                )
        return [replies[rank].value for rank in sorted(replies)]

    def _take_back(self, number: int, replies: Replies) -> None:
        """Undo a change that some learners did not finish, on those that applied it."""
        if not _are_equal(replies):
            self._sync_from(next(rank for rank, reply in replies.items() if reply.committed < number))

    def _values_after_recovery(self, replies: Replies, number: int) -> list[Any]:
        """The values of a change that only some learners answered; the others now have their state."""
        good = {rank: reply for rank, reply in replies.items() if reply.committed == number}
        first = good[min(good)]
        return [good.get(rank, first).value for rank in self._workers.ranks]

    def _run_connectors(self, args: Any, timeout_s: float) -> Any:
        """Reference to `(batch,)`, which learner 0 makes from episodes."""
        replies, lost, batch = self._workers.run_connectors(args, timeout_s)
        self._recover(lost)
        raise_failures(replies)
        if replies and replies[0].digest != self._workers.digest:
            self._sync_from(0)  # a connector changed more than counters and random streams
        return batch


def _are_equal(replies: Replies) -> bool:
    return len({reply.digest for reply in replies.values()}) == 1


def _get_config(learner: LearnerProtocol) -> Config:
    return learner.config


def _set_num_learners(learner: Learner, num_learners: int) -> None:
    learner.config = learner.config.changed(num_learners=num_learners)


def _check_none_open(learner: Learner, what: str) -> None:
    learner._check_no_step_is_open(what)


def run_verb(
    learner: Learner, verb: str, *args: Any, settings: Mapping[str, Any], after: int
) -> dict[ModuleID, dict[str, Any]]:
    """Run a verb on a learner of a group; for `Learner.apply`.

    Args:
        learner: the learner.
        verb: the method's name.
        *args: its positional arguments.
        settings: its named arguments.
        after: how many calls of `forward_backward` it must have accumulated.

    Returns:
        The results.

    Raises:
        UnfinishedStepError: it has accumulated another number of calls.
        Exception: what the method raises.
    """
    results: dict[ModuleID, dict[str, Any]] = getattr(learner._verbs, verb)(*args, after=after, **settings)
    return results
