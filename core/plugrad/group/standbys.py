"""`Standbys`: learners that are built and compiled, ready to replace one that is lost.

Nothing here waits for them. An actor runs its calls in order: a standby is sent everything that it has to do, and its
answers are read when the group has changed.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import RLock
from time import monotonic
from typing import Any

from plugrad.errors import LearnerGroupDeadError
from plugrad.group.messages import Reply
from plugrad.workers.actors import Actor, RayCalls
from plugrad.workers.answers import LostActor, RestartLimit

FOLLOW_SHARE = 0.02
"""The fraction of its time that a learner may spend on copies of its state for the standbys."""
MAX_SHAPES = 8
"""How many of the latest batch shapes a new standby compiles."""
log = logging.getLogger("plugrad")


@dataclass(eq=False)
class Standby:
    """One standby learner.

    Args:
        actor: its actor.
        built: Ray's reference to the reply of its `build`.

    Attributes:
        calls: references to its outstanding answers, oldest first.
        rehearsed: keys of the updates that it was told to compile.
    """

    actor: Actor
    built: Any
    calls: list[Any] = field(default_factory=list)
    rehearsed: set[Any] = field(default_factory=set)


class Standbys:
    """The standbys of a group; none if `number` is 0. All methods are thread-safe.

    A standby builds a learner, and compiles each shape of update that the group has run by running such an update. It
    follows the group's state: one learner repeatedly copies its state for all standbys, using at most a fiftieth of
    its time.

    Args:
        calls: calls actors.
        number: how many standbys.
        start: starts an actor that builds a learner, and returns `(actor, reference to the reply)`.
        restarts: limits how many may be started to replace lost ones.
    """

    def __init__(
        self, calls: RayCalls, number: int, start: Callable[[], tuple[Actor, Any]], restarts: RestartLimit
    ) -> None:
        self._calls = calls
        self._number = number
        self._start = start
        self._restarts = restarts
        self._lock = RLock()
        self._waiting: list[Standby] = []
        self._missing = number
        self._updates: dict[Any, tuple[Any, Mapping[str, Any]]] = {}
        self._size = 0
        self._state: tuple[Any, Any] | None = None
        self._follows_at = 0.0
        self._fits = True

    def count_ready(self) -> int:
        """How many have built and compiled everything; also starts missing ones."""
        with self._lock, suppress(LearnerGroupDeadError):  # Ray itself is gone: the next call reports it
            self._look()
            return sum(self._fits and not each.calls for each in self._waiting)
        return 0

    def take(self) -> Standby | None:
        """Take the standby that has the least left to do; None if there is none."""
        with self._lock:
            alive = [each for each in self._waiting if not each.actor.has_exited]
            if not alive:
                return None
            standby = min(alive, key=lambda each: len(each.calls))
            self._waiting.remove(standby)
            self._missing += 1
            return standby

    def remember(self, key: Any, args: Any, settings: Mapping[str, Any], size: int) -> None:
        """Remember an update of the group, for each standby to compile.

        Args:
            key: equal for updates that run the same program.
            args: Ray's reference to `(batch,)`.
            settings: the other arguments of the update.
            size: number of learners that share the batch.
        """
        with self._lock:
            if not self._number or (size == self._size and key in self._updates):
                return
            if size != self._size:
                self.forget()
                self._size = size
            self._updates[key] = args, settings
            while len(self._updates) > MAX_SHAPES:
                del self._updates[next(iter(self._updates))]

    def forget(self, other_config: bool = False) -> None:
        """Forget the remembered updates, because the learners' programs were discarded.

        Args:
            other_config: whether the learners' modules or settings changed, so that a standby first needs their state.
        """
        with self._lock:
            self._updates.clear()
            for each in self._waiting:
                each.rehearsed.clear()
            if other_config:
                self._state, self._fits, self._follows_at = None, False, 0.0

    def follow(self, learner: Actor) -> None:
        """Continue with everything that is left to do.

        Args:
            learner: a learner with the group's state and no outstanding answers.
        """
        if not self._number:
            return
        with self._lock, suppress(LearnerGroupDeadError):
            self._look()
            is_busy = any(each.calls for each in self._waiting)
            if self._state is None and monotonic() >= self._follows_at and not (is_busy and self._fits):
                self._state = tuple(learner.call("copy_sync_state", False, num_returns=2))

    def close(self) -> list[Actor]:
        """Stop having standbys; returns the actors, which the caller must kill."""
        with self._lock:
            actors = [each.actor for each in self._waiting]
            self._waiting, self._number, self._missing = [], 0, 0
            return actors

    def _look(self) -> None:
        """Read available answers, start missing standbys, and send all of them their work."""
        for each in list(self._waiting):
            problem = self._read_answers(each)
            if problem is not None:
                log.warning("a standby learner is lost: %s", problem)
                self._waiting.remove(each)
                each.actor.kill()
                self._missing += self._restarts.take(1)
        while self._missing:
            actor, built = self._start()
            self._waiting.append(Standby(actor, built, [actor.locate(), built]))
            self._missing -= 1
        self._pass_on_state()
        for each in self._waiting if self._fits else ():
            self._rehearse(each)

    def _read_answers(self, standby: Standby) -> str | None:
        """Why a standby is lost, or None."""
        if standby.actor.has_exited:
            return "its process has ended"
        while standby.calls and self._calls.wait(standby.calls[:1], 0.0):
            answer = self._calls.get(-1, standby.calls[0])
            if isinstance(answer, LostActor):
                return answer.reason
            if isinstance(answer, tuple):
                standby.actor.location = answer
            elif not isinstance(answer, Reply):
                return str(answer)
            elif answer.failure is not None:
                if standby.calls[0] is standby.built:
                    return answer.failure.summary
                log.info("a standby learner is not compiled or did not follow: %s", answer.failure.summary)
            del standby.calls[0]
        return None

    def _pass_on_state(self) -> None:
        if self._state is None:
            return
        answer, state = self._state
        if not self._calls.wait([answer], 0.0):
            return
        self._state = None
        reply = self._calls.get(-1, answer)
        if not isinstance(reply, Reply) or reply.failure is not None:
            return  # that learner is lost: another one is asked next time
        self._follows_at = monotonic() + reply.value / FOLLOW_SHARE
        self._fits = True
        for each in self._waiting:
            each.calls.append(each.actor.call("set_sync_state", state))

    def _rehearse(self, standby: Standby) -> None:
        for key, (args, settings) in self._updates.items():
            if key not in standby.rehearsed:
                standby.rehearsed.add(key)
                standby.calls.append(standby.actor.call("rehearse", self._size, args, settings))
        standby.rehearsed &= self._updates.keys()
