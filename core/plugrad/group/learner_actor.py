"""`LearnerActor`: one learner of a group in a process of its own. Knows no Ray: what runs it is not its business.

Nothing that it is asked for makes it die: an exception is an answer. It loads its backend itself, after it has set its
threads.
"""

import os
import pickle
import sys
from collections.abc import Callable, Mapping
from typing import Any

from plugrad.collective import Address, Collective, host, join
from plugrad.group.messages import Failure, Reply, failure_of
from plugrad.learner import Learner, build_learner
from plugrad.learner.snapshot import digest

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)


class LearnerActor:
    """See the module.

    Args:
        rank: its place in the group, until it joins another.
        num_threads: how many threads one operation of the framework may use.
        search_path: where the user's classes can be imported from: the driver's `sys.path`.
    """

    def __init__(self, rank: int, num_threads: int, search_path: list[str]) -> None:
        sys.path += [folder for folder in search_path if folder not in sys.path]
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(num_threads)))
        self._rank = rank
        self._committed = 0
        self._learner: Learner | None = None
        self._collective: Collective | None = None
        self._hosted: Any = None

    def build(self, pickled_config: bytes) -> Reply:
        """Build the learner."""

        def build() -> None:
            self._learner = build_learner(pickle.loads(pickled_config))

        return self._reply(build)

    def host(self, kind: str, size: int, name: str) -> Reply:
        """The address at which the group meets: rank 0's part of making a collective."""

        def open_place() -> Any:
            address, self._hosted = host(kind, size, name)
            return address

        return self._reply(open_place)

    def join(self, address: Address | None, rank: int, timeout_s: float) -> Reply:
        """Meet the others; None: this learner is alone."""
        self._rank = rank
        was_alone = self._collective is None
        self._leave()

        def join_group() -> None:
            learner = self._built()
            if address is not None:
                self._collective = join(address, rank, timeout_s, self._hosted)
                self._hosted = None
                self._collective.enter()
            learner.collective = self._collective
            if was_alone != (address is None):
                learner.forget_programs()  # those of a learner alone exchange nothing

        return self._reply(join_group)

    def _leave(self) -> None:
        if self._collective is not None:
            self._collective.close()
        self._collective = None

    def run(
        self,
        number: int | None,
        timeout_s: float,
        method: str,
        given: Any,
        kwargs: Mapping[str, Any],
        several: bool,
    ) -> Reply:
        """Call a method of the learner.

        Args:
            number: of this change, if it is one; it is committed when all have done it.
            timeout_s: how long to wait for other learners.
            method: name of the method.
            given: its argument, or a tuple of its arguments.
            kwargs: its named arguments.
            several: whether `given` is a tuple.
        """
        if self._collective is not None:
            self._collective.timeout_s = timeout_s

        def call() -> Any:
            args = given if several else (given,)
            value = getattr(self._built(), method)(*args, **kwargs)
            self._committed = self._committed if number is None else number
            return value

        return self._reply(call)

    def prepare(self, episodes: Any) -> tuple[Reply, Any]:
        """Run the connectors, once for all learners: `(reply, batch)`."""
        columns: dict[str, Any] = {}

        def connect() -> None:
            columns.update(self._built().run_connectors(episodes))

        reply = self._reply(connect)
        return reply, columns

    def abort(self, reason: str) -> None:
        """Stop waiting for other learners; called from another thread."""
        if self._collective is not None:
            self._collective.abort(reason)

    def look(self) -> Reply:
        """How far it is."""
        return self._reply(lambda: None)

    def give(self) -> Any:
        """Everything that makes another learner equal to this one."""
        import cloudpickle  # Ray brings it

        learner = self._built()
        return cloudpickle.dumps(learner.config), learner.get_state(), self._committed

    def adopt(self, given: Any) -> Reply:
        """Become equal to the learner that gave it."""

        def become() -> None:
            pickled_config, state, committed = given
            config = pickle.loads(pickled_config)
            learner = self._built()
            if set(state["rl_module"]) != set(learner.module):
                learner = self._learner = build_learner(config)
                learner.collective = self._collective
            learner.config = config
            learner.set_state(state)
            self._committed = committed

        return self._reply(become)

    def _built(self) -> Learner:
        assert self._learner is not None
        return self._learner

    def _reply(self, work: Callable[[], Any]) -> Reply:
        try:
            value, failure = work(), None
        except Exception as error:
            value, failure = None, self._failure_of(error)
        state = "" if self._learner is None else digest(self._learner)
        return Reply(self._rank, self._committed, state, value, failure)

    def _failure_of(self, error: Exception) -> Failure:
        """A failed exchange may come as the framework's error: the collective knows better."""
        if self._collective is not None:
            known = self._collective.failure
            self._collective.leave()
            if known is not None and str(known) in str(error):
                error = known.with_traceback(error.__traceback__)
        return failure_of(error, self._rank, self._committed + 1)
