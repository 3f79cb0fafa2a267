"""Any order of calls and faults: counters add up, no update is lost or repeated, and nothing waits for ever."""

import os
import signal
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread, Timer
from typing import Any

import numpy as np
import pytest
from groups import be, group_config
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from learning import largest_difference, ppo_batch
from waiting import wait_until

from plugrad import DEFAULT_MODULE_ID, LearnerGroup, RLModuleSpec
from plugrad.errors import (
    LearnerGroupDeadError,
    LearnerTimeoutError,
    NonFiniteError,
    QueueFullError,
    RestoreMismatchError,
)
from plugrad.group import Dropped, UpdateFuture
from plugrad.learner.state.state import digest as digest_of

P = DEFAULT_MODULE_ID
SPEC = RLModuleSpec(model_config={"fcnet_hiddens": [1]})
PATIENCE_S = 60
LIMIT = 2
DEATHS = (LearnerGroupDeadError, LearnerTimeoutError)
OUTCOMES = ("applied", "failed", "dropped")


def in_time(call: Callable[[], Any]) -> Any:
    """What it answers or raises; one that hangs fails the test and does not hang it."""
    answer: Future[Any] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    Thread(target=run, daemon=True).start()
    return answer.result(PATIENCE_S)


ON_FAILURE = st.sampled_from(["restart", "restart", "shrink", "raise"])
ON_FULL = st.sampled_from(["block", "raise", "drop_oldest", "drop_newest"])


class AnyOrder(RuleBasedStateMachine):
    """Some learners against a model: one learner in this process that gets what was not dropped, in order."""

    backend = "numpy"
    learners = 2
    signals = (signal.SIGKILL,)
    group: LearnerGroup | None = None

    @initialize(on_failure=ON_FAILURE, on_full=ON_FULL)
    def begin(self, on_failure: str, on_full: str) -> None:
        config = group_config(self.backend).learners(
            num_learners=self.learners,
            on_failure=on_failure,
            on_full=on_full,
            max_requests_in_flight_per_learner=LIMIT,
            timeout_s=20 if len(self.signals) == 1 else 3,
        )
        self.config = config
        self.group = in_time(config.build_learner_group)
        self.one = config.learners(num_learners=0).build_learner()
        self.futures: list[UpdateFuture] = []
        self.polled, self.told, self.to_be_told = 0, [], []
        self.pending: list[tuple[UpdateFuture | None, Any]] = []  # in the order of submission
        self.saved: list[tuple[Any, set[str]]] = []
        self.timers: list[Timer] = []
        self.folder = tempfile.TemporaryDirectory()
        self.dead, self.struck = False, 0
        self.look()

    # --- what it is compared with -------------------------------------------------------------------------------

    @property
    def may_die(self) -> bool:
        """Whether the group has a right to: it must not go on, or both died before one could tell the other."""
        return self.struck >= (1 if self.config.on_failure == "raise" else self.size)

    def ask(self, call: Callable[[], Any]) -> Any:
        """What a call answers, which is after everything that was submitted before; None if the group died of it."""
        try:
            answer = in_time(call)
        except DEATHS:
            assert self.may_die
            self.dead = True
            return None
        self.catch_up()
        return answer

    def catch_up(self) -> None:
        """Let the model do what the learners have done."""
        for future, batch in self.pending:
            if future is not None:
                self.do_too(future, batch)
            else:
                if not is_bad(batch):
                    self.one.update(batch)
                self.to_be_told.append(None if is_bad(batch) else self.one.counters["weights_seq_no"])
        self.pending = []

    def do_too(self, future: UpdateFuture, batch: Any) -> None:
        assert future.done
        if future.state == "dropped":
            assert isinstance(future.result(), Dropped)
            assert self.config.on_full.startswith("drop")
        elif future.state == "failed":
            with pytest.raises((NonFiniteError, *DEATHS)) as raised:
                future.result(0)
            died = isinstance(raised.value, DEATHS)
            assert self.may_die if died else is_bad(batch) and not self.dead
            self.dead = died
        else:
            assert not self.dead
            self.one.update(batch)
            self.assert_same_step(future.result(0))

    def assert_same_step(self, results: Any) -> None:
        assert {each[P]["weights_seq_no"] for each in results} == {self.one.counters["weights_seq_no"]}

    def batch(self, seed: int, good: bool) -> Any:
        batch = {
            name: ppo_batch(16, seed=seed + number) for number, name in enumerate(sorted(self.one.module))
        }
        if not good:
            batch[P]["advantages"][3] = np.nan
        return batch

    # --- work ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.dead)
    @rule(seed=st.integers(0, 9), good=st.sampled_from([True, True, True, False]))
    def submit(self, seed: int, good: bool) -> None:
        batch = self.batch(seed, good)
        try:
            future = in_time(lambda: self.group.submit(batch))
        except QueueFullError:
            assert self.config.on_full == "raise"
            return
        self.futures.append(future)
        self.pending.append((future, batch))

    @precondition(lambda self: not self.dead and self.config.on_full in ("block", "raise"))
    @precondition(lambda self: self.config.on_failure == "restart")
    @rule(seed=st.integers(0, 9), good=st.sampled_from([True, True, True, False]))
    def poll(self, seed: int, good: bool) -> None:
        """Results and errors of earlier calls; a call that raises one has not taken its own batch."""
        batch = self.batch(seed, good)
        try:
            results = in_time(lambda: self.group.update(batch, async_update=True))
        except QueueFullError:
            assert self.config.on_full == "raise"
        except NonFiniteError:
            self.told.append(None)
        except DEATHS:
            assert self.may_die
            self.dead = True
        else:
            self.told += [each[P]["weights_seq_no"] for each in results[:: self.learners]]
            self.polled += 1
            self.pending.append((None, batch))

    @precondition(lambda self: not self.dead)
    @rule(seed=st.integers(0, 9), good=st.booleans())
    def update(self, seed: int, good: bool) -> None:
        batch = self.batch(seed, good)
        if not good:
            try:
                self.ask(lambda: self.group.update(batch))
                assert self.dead
            except NonFiniteError:
                self.catch_up()
            return
        results = self.ask(lambda: self.group.update(batch))
        if not self.dead:
            assert len(results) == len(self.group)
            self.one.update(batch)
            self.assert_same_step(results)

    @precondition(lambda self: not self.dead and any(not future.done for future in self.futures))
    @rule()
    def wait(self) -> None:
        future = next(future for future in self.futures if not future.done)
        try:
            in_time(lambda: future.result(PATIENCE_S))
        except NonFiniteError:
            pass
        except DEATHS:
            assert self.may_die
            self.dead = True

    @precondition(lambda self: not self.dead and not self.struck)
    @rule(when=st.sampled_from(["raise before", "raise after"]))
    def one_raises(self, when: str) -> None:
        self.ask(lambda: self.group.foreach_learner(be, {0: when}))
        with pytest.raises((KeyError, ZeroDivisionError)) as raised:
            in_time(lambda: self.group.update(self.batch(0, True)))
        assert raised.value.rank == 0
        self.ask(lambda: self.group.foreach_learner(be, {}))

    # --- modules and state --------------------------------------------------------------------------------------

    @precondition(lambda self: not self.dead)
    @rule(module_id=st.sampled_from(["p1", "p2"]))
    def come_or_go(self, module_id: str) -> None:
        is_there = module_id in self.one.module
        call = {
            True: lambda each: each.remove_module(module_id),
            False: lambda each: each.add_module(module_id=module_id, module_spec=SPEC),
        }[is_there]
        self.ask(lambda: call(self.group))
        if not self.dead:
            call(self.one)

    @precondition(lambda self: not self.dead)
    @rule(to_disk=st.booleans())
    def save(self, to_disk: bool) -> None:
        def on_disk() -> str:
            return self.group.save_to_path(f"{self.folder.name}/{len(self.saved)}")

        saved = self.ask(on_disk if to_disk else self.group.get_state)
        if not self.dead:
            self.saved.append((saved, set(self.one.module)))

    @precondition(lambda self: not self.dead and self.saved)
    @rule(data=st.data())
    def go_back(self, data: Any) -> None:
        saved, modules = data.draw(st.sampled_from(self.saved))
        back = self.group.restore_from_path if isinstance(saved, str) else self.group.set_state
        if modules != set(self.one.module):
            with pytest.raises((RestoreMismatchError, *DEATHS)) as raised:
                in_time(lambda: back(saved))
            self.dead = isinstance(raised.value, DEATHS)
            assert self.may_die or not self.dead
            return
        self.ask(lambda: back(saved))
        if not self.dead and isinstance(saved, str):
            self.one.restore_from_path(saved)
        elif not self.dead:
            self.one.set_state(saved["learner"])

    # --- deaths -------------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.dead and self.pids)
    @rule(data=st.data(), after_s=st.sampled_from([0.0, 0.01, 0.05, 0.3]))
    def strike(self, data: Any, after_s: float) -> None:
        victim = data.draw(st.integers(0, len(self.pids) - 1))
        what = data.draw(st.sampled_from(self.signals))
        self.struck += 1
        self.timers.append(Timer(after_s, send, (self.pids.pop(victim), what)))
        self.timers[-1].start()

    @precondition(lambda self: not self.dead)
    @rule()
    def look(self) -> None:
        """All are there, and are what the model is."""
        for timer in self.timers:
            timer.join()
        found = self.ask(
            lambda: self.group.foreach_learner(lambda learner: (os.getpid(), digest_of(learner)))
        )
        if self.dead:
            return
        assert self.told == self.to_be_told[: len(self.told)]
        self.pids, self.size, self.struck = [pid for pid, _ in found], len(found), 0
        assert len({digest for _, digest in found}) == 1
        assert len(found) == len(self.group)
        assert len(self.group) == self.learners or self.config.on_failure == "shrink"
        state, expected = self.ask(self.group.get_state)["learner"], self.one.get_state()
        assert largest_difference(state["rl_module"], expected["rl_module"]) < 1e-6
        assert state["counters"] == expected["counters"]
        assert state["streams"] == expected["streams"]

    @precondition(lambda self: not self.dead)
    @rule()
    def shut_down(self) -> None:
        """Whatever waits, and whoever is being replaced: every future has an outcome, and no learner is left."""
        in_time(self.group.shutdown)
        self.dead = True
        states = [future.state for future in self.futures]
        stats = self.group.get_stats()
        assert stats["in_flight"] == 0
        unseen = [stats[each] - states.count(each) for each in OUTCOMES]
        assert min(unseen) >= 0
        assert sum(unseen) == self.polled
        for call in (self.group.update, self.group.submit, self.group.get_state):
            with pytest.raises(LearnerGroupDeadError, match="shut down"):
                in_time(call)

    @precondition(lambda self: self.dead)
    @rule()
    def stays_dead(self) -> None:
        with pytest.raises(LearnerGroupDeadError):
            in_time(lambda: self.group.update(ppo_batch(16)))

    @precondition(lambda self: self.dead)
    @rule(on_failure=ON_FAILURE, on_full=ON_FULL)
    def begin_again(self, on_failure: str, on_full: str) -> None:
        self.end()
        self.begin(on_failure, on_full)

    # --- always -------------------------------------------------------------------------------------------------

    @invariant()
    def counters_add_up(self) -> None:
        if self.group is None:
            return
        before = sum(not future.done for future in self.futures)
        stats = self.group.get_stats()
        after = sum(not future.done for future in self.futures)
        assert after <= stats["in_flight"] <= min(before + self.polled, LIMIT)
        outcomes = sum(stats[each] for each in OUTCOMES)
        assert stats["submitted"] == outcomes + stats["in_flight"] == len(self.futures) + self.polled

    def end(self) -> None:
        in_time(self.group.shutdown)
        for timer in self.timers:
            timer.join()
        wait_until(lambda: reserved_cpus() == 0, "an end of all that reserves CPUs", 0.02)
        self.folder.cleanup()

    def teardown(self) -> None:
        if self.group is None:
            return
        try:
            if not self.dead:
                self.look()
        finally:
            self.end()


def send(pid: int, what: int) -> None:
    with suppress(ProcessLookupError):  # the group ended it before
        os.kill(pid, what)


def is_bad(batch: Any) -> bool:
    return bool(np.isnan(batch[P]["advantages"]).any())


def reserved_cpus() -> float:
    import ray

    return float(ray.cluster_resources()["CPU"] - ray.available_resources().get("CPU", 0.0))


def assert_any_order(machine: type[AnyOrder], examples: int, steps: int) -> None:
    """Its `look` is what must hold after every call."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=True,
            deadline=None,
            phases=[Phase.generate],  # to make an example smaller takes as long as it, each time
            suppress_health_check=list(HealthCheck),
        ),
    )


class OfThree(AnyOrder):
    learners = 3


class OnTorch(AnyOrder):
    backend = "torch"


class OnTf2(AnyOrder):
    backend = "tf2"


class Stopped(AnyOrder):
    signals = (signal.SIGKILL, signal.SIGSTOP)


@pytest.mark.cross_product(part=3)
@pytest.mark.parametrize(
    ("machine", "examples", "steps"),
    [(AnyOrder, 5, 14), (OfThree, 1, 8), (OnTorch, 1, 8), (OnTf2, 1, 8), (Stopped, 1, 8)],
)
def test_any_order_of_calls_and_deaths(
    cluster: None, machine: type[AnyOrder], examples: int, steps: int
) -> None:
    """Few for each of the kinds below."""
    assert_any_order(machine, examples, steps)


@pytest.mark.long
@pytest.mark.parametrize(
    ("machine", "examples"), [(AnyOrder, 60), (OfThree, 20), (OnTorch, 20), (OnTf2, 6), (Stopped, 20)]
)
def test_many_orders_of_calls_and_deaths(cluster: None, machine: type[AnyOrder], examples: int) -> None:
    assert_any_order(machine, examples, steps=30)
