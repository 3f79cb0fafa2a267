"""An object in a process of its own, called from several threads."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from plugrad.workers.process import ProcessCalls, WorkerProcess

TIMEOUT_S = 60.0
CALLS = 20
LARGER_THAN_THE_BUFFER_OF_A_SOCKET = 1 << 20


@pytest.fixture
def echo() -> Iterator[WorkerProcess]:
    process = WorkerProcess(str, "{}", timeout_s=TIMEOUT_S)  # `"{}".format` gives back what it gets
    yield process
    process.kill()


def test_each_thread_gets_the_answers_of_its_own_calls(echo):
    def call(thread: int) -> list[str]:
        wrong = []
        for n in range(CALLS):
            text = f"{thread}-{n}".ljust(LARGER_THAN_THE_BUFFER_OF_A_SOCKET)
            request, sign_of_life = echo.call("format", text), echo.ping()
            sign_of_life.result(TIMEOUT_S)
            request.result(TIMEOUT_S)
            if ProcessCalls().get(0, request) != text:
                wrong.append(text.strip())
        return wrong

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(call, range(3))) == [[], [], []]


def test_an_error_of_a_call_is_raised_and_the_next_call_is_answered(echo):
    assert ProcessCalls().get(0, echo.call("index", "x")).__class__ is ValueError
    assert ProcessCalls().get(0, echo.call("upper")) == "{}"
