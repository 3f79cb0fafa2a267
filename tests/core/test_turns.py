"""Functions that take turns: their order, their answers, their errors, and how Ctrl-C ends them."""

import threading

import pytest

from plugrad.learner.update.batched_programs import Turns


def doubled(requests):
    return [2 * each for each in requests]


def test_all_have_asked_or_ended_before_any_is_answered():
    asked = []

    def answer(requests):
        asked.append(list(requests))
        return doubled(requests)

    turns = Turns(answer)

    def asking(number, times):
        return lambda: [turns.ask(10 * number + n) for n in range(times)]

    assert turns.run([asking(1, 3), asking(2, 1), asking(3, 2)]) == [[20, 22, 24], [40], [60, 62]]
    assert asked == [[10, 20, 30], [11, 31], [12]]


def test_one_runs_at_a_time_in_the_order_of_the_functions():
    seen, turns = [], Turns(doubled)

    def run(number):
        seen.append((number, "begins"))
        turns.ask(0)
        seen.append((number, "ends"))

    turns.run([lambda: run(1), lambda: run(2)])
    assert seen == [(1, "begins"), (2, "begins"), (1, "ends"), (2, "ends")]


def test_nobody_takes_turns_outside():
    turns = Turns(doubled)
    assert not turns.is_running
    assert turns.run([lambda: turns.is_running]) == [True]


def test_an_error_of_one_is_raised_when_the_others_have_ended():
    turns, ended = Turns(doubled), []

    def fails():
        turns.ask(1)
        raise KeyError("mine")

    def goes_on():
        ended.append([turns.ask(n) for n in range(3)])

    with pytest.raises(KeyError, match="mine") as caught:
        turns.run([goes_on, fails, goes_on])
    assert caught.value.__notes__ == ["in number 1 of 3 that are trained together"]
    assert ended == [[0, 2, 4], [0, 2, 4]]


def test_an_error_of_the_answer_is_raised_where_it_was_asked():
    def refuse(requests):
        raise OSError("no answer")

    turns, heard = Turns(refuse), []

    def asks():
        try:
            turns.ask(1)
        except OSError as error:
            heard.append(str(error))

    turns.run([asks, asks])
    assert heard == ["no answer", "no answer"]


def test_ctrl_c_reaches_each_where_it_waits_and_leaves_no_thread():
    def interrupt(requests):
        raise KeyboardInterrupt

    turns, restored = Turns(interrupt), []

    def asks():
        try:
            turns.ask(1)
        except BaseException:
            restored.append(True)
            raise

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        turns.run([asks, asks])
    assert restored == [True, True]
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.daemon:
            thread.join(0.5)
    assert threading.active_count() <= before
