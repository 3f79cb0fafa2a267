"""`LearnerActor`: one learner of a group in a process of its own.

Nothing that it is called for ends it: an exception is an answer. It imports its backend itself, after it has set the
number of threads.
"""

import os
import pickle
import sys
from collections.abc import Callable, Mapping
from typing import Any

from plugrad.batch import MultiAgentBatch
from plugrad.collective import Address, Collective, host, join
from plugrad.episodes import num_env_steps
from plugrad.group.messages import Failure, Reply, make_failure
from plugrad.learner import Learner, build_learner
from plugrad.learner.snapshot import digest

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)


def prepare_process(search_path: list[str], num_threads: int) -> None:
    """Prepare an actor's process, before it imports a framework.

    Args:
        search_path: the driver's `sys.path`, from which the user's classes are imported.
        num_threads: how many threads one operation of a framework may use.
    """
    sys.path += [folder for folder in search_path if folder not in sys.path]
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(num_threads)))


class LearnerActor:
    """The class of the actors that `WorkerGroup` starts.

    Args:
        rank: in the group, until `join` gives another.
        num_threads: see `prepare_process`.
        search_path: see `prepare_process`.
    """

    def __init__(self, rank: int, num_threads: int, search_path: list[str]) -> None:
        prepare_process(search_path, num_threads)
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
        """Host a collective, as rank 0; see `plugrad.collective.host`.

        Args:
            kind: "shared_memory" or "sockets".
            size: number of learners.
            name: of the shared file.

        Returns:
            A reply with the address.
        """

        def host_collective() -> Address:
            address, self._hosted = host(kind, size, name)
            return address

        return self._reply(host_collective)

    def join(self, address: Address | None, rank: int, timeout_s: float) -> Reply:
        """Leave the present collective and join another.

        Args:
            address: from `host`; None: this learner is alone.
            rank: its new rank.
            timeout_s: seconds to wait for the other learners.

        Returns:
            A reply without a value.
        """
        self._rank = rank
        was_alone = self._collective is None
        if self._collective is not None:
            self._collective.close()
        self._collective = None

        def join_collective() -> None:
            learner = self._built_learner()
            if address is not None:
                self._collective = join(address, rank, timeout_s, self._hosted)
                self._hosted = None
                self._collective.enter()
            learner.collective = self._collective
            if was_alone != (address is None):
                learner.forget_programs()  # those of a learner alone exchange nothing

        return self._reply(join_collective)

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
            number: of this change, if it is one; it is committed when the method returns.
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
            value = getattr(self._built_learner(), method)(*args, **kwargs)
            self._committed = self._committed if number is None else number
            return value

        return self._reply(call)

    def run_connectors(self, args: tuple[Any]) -> tuple[Reply, tuple[MultiAgentBatch]]:
        """Run the learner connectors on episodes, once for all learners; returns a reply and `(batch,)`."""
        columns: dict[str, Any] = {}
        reply = self._reply(lambda: columns.update(self._built_learner().run_connectors(*args)))
        return reply, (MultiAgentBatch(columns, num_env_steps(args[0])),)

    def abort(self, reason: str) -> None:
        """Stop waiting for other learners; called from another thread."""
        if self._collective is not None:
            self._collective.abort(reason)

    def get_status(self) -> Reply:
        """A reply without a value, for what every reply says."""
        return self._reply(lambda: None)

    def get_sync_state(self) -> Any:
        """Everything that makes another learner equal to this one: pickled config, state, last committed change."""
        import cloudpickle

        learner = self._built_learner()
        return cloudpickle.dumps(learner.config), learner.get_state(), self._committed

    def set_sync_state(self, sync_state: tuple[bytes, dict[str, Any], int]) -> Reply:
        """Become equal to the learner whose `get_sync_state` this is."""

        def become() -> None:
            pickled_config, state, committed = sync_state
            config = pickle.loads(pickled_config)
            learner = self._built_learner()
            if set(state["rl_module"]) != set(learner.module):
                learner = self._learner = build_learner(config)
                learner.collective = self._collective
            learner.config = config
            learner.set_state(state)
            self._committed = committed

        return self._reply(become)

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
        """Leave the collective. A failed exchange may be raised as the framework's error: send the original one."""
        if self._collective is not None:
            original = self._collective.failure
            self._collective.leave()
            if original is not None and str(original) in str(error):
                error = original.with_traceback(error.__traceback__)
        return make_failure(error, self._rank, self._committed + 1)
