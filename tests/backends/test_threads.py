"""Threads that read a learner while another one changes it: what they get is always a state between two updates."""

import threading

import needs
import numpy as np
from learning import digest, ppo_batch, ppo_config

from plugrad import DEFAULT_MODULE_ID, Learner, hookimpl

P = DEFAULT_MODULE_ID
UPDATES = 12


def read_while(work, read):
    """What `read()` returned, again and again, while `work()` ran."""
    found, is_over = [], threading.Event()

    def keep_reading():
        while not is_over.is_set():
            found.append(read())

    thread = threading.Thread(target=keep_reading)
    thread.start()
    try:
        work()
    finally:
        is_over.set()
        thread.join()
    return found


def mark(learner):
    """Equal for equal states only."""
    return str(digest(learner.get_state()))


def updates(learner, then):
    for n in range(UPDATES):
        learner.update(ppo_batch(64, seed=n), minibatch_size=8)
        then()


def test_a_state_that_another_thread_reads_is_one_between_two_updates(backend):
    learner = ppo_config(backend).build_learner()
    learner.update(ppo_batch(64), minibatch_size=8)
    between = [mark(learner)]
    found = read_while(lambda: updates(learner, lambda: between.append(mark(learner))), lambda: mark(learner))
    assert len(found) > 1
    assert set(found) <= set(between)


def test_actions_of_another_thread_are_those_of_weights_between_two_updates(backend):
    learner = ppo_config(backend).build_learner()
    obs = np.ones((1, 3), np.float32)

    def act():
        return learner.compute_actions(obs, explore=False)["action_dist_inputs"].tobytes()

    learner.update(ppo_batch(64), minibatch_size=8)
    between = [act()]
    found = read_while(lambda: updates(learner, lambda: between.append(act())), act)
    assert len(found) > 1
    assert set(found) <= set(between)


class Asks:
    """Calls the learner from within its own update."""

    def __init__(self):
        self.states = []

    @hookimpl(wrapper=True)
    def after_gradient_based_update(self, learner):
        learner.compute_actions(np.zeros((1, 3), np.float32))
        return (yield)

    @hookimpl
    def update_ended(self, learner):
        self.states.append(learner.get_state())


def test_hooks_and_listeners_may_ask_the_learner_that_calls_them(backend):
    asks = Asks()
    learner = Learner(config=ppo_config(backend), plugins=[asks])
    learner.build()
    learner.update(ppo_batch(16))
    assert digest(asks.states[-1]) == digest(learner.get_state())


def test_a_thread_that_traces_without_xla_says_nothing_about_the_others():
    needs.backend("tf2")
    from plugrad_tf2 import without_xla

    seen = []
    with without_xla.without_xla():
        thread = threading.Thread(target=lambda: seen.append(without_xla.xla_compiles()))
        thread.start()
        thread.join()
        assert not without_xla.xla_compiles()
    assert seen == [True]
    assert without_xla.xla_compiles()
