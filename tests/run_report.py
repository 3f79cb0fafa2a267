"""Writes which cases pytest ran, skipped and left out into the folder PLUGRAD_TEST_REPORT; tests/ran.py reads it.

With xdist only its workers know what was collected and left out: they send it when they end.
"""

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from ran import FAILED, LEFT, PASSED, SKIPPED, Case, write

VARIABLE = "PLUGRAD_TEST_REPORT"
SENT = "collected"


def pytest_configure(config: pytest.Config) -> None:
    """Take part in a run that is to be reported, and in all of a worker's."""
    # Taken away: another pytest, which a test starts, is no part of the report.
    folder = os.environ.pop(VARIABLE, None)
    if folder is not None or hasattr(config, "workerinput"):
        config.pluginmanager.register(_Report(folder))


class _Report:
    def __init__(self, folder: str | None) -> None:
        self.folder = folder
        self.backends: dict[str, str] = {}
        """`{id of a case: its backend}`, of all that were collected."""
        self.outcomes: defaultdict[str, str] = defaultdict(lambda: LEFT)
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        backend = getattr(getattr(item, "callspec", None), "params", {}).get("backend", "")
        self.backends[item.nodeid] = backend if isinstance(backend, str) else ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        known = self.outcomes[report.nodeid]
        if report.failed or known == FAILED:
            self.outcomes[report.nodeid] = FAILED
        elif report.skipped and not hasattr(report, "wasxfail"):
            self.outcomes[report.nodeid] = SKIPPED
        elif report.when == "call":  # an expected failure, too
            self.outcomes[report.nodeid] = PASSED

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[SENT] = self.backends

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.backends |= getattr(node, "workeroutput", {}).get(SENT, {})  # none of a worker that died

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.folder is None:
            return
        cases = []
        for nodeid in self.backends | self.outcomes:
            name, _, parameters = nodeid.removesuffix("]").partition("[")
            file, _, function = name.partition("::")
            backend = self.backends.get(nodeid, "")
            outcome, seconds = self.outcomes[nodeid], round(self.seconds[nodeid], 3)
            cases.append(Case(file, function, parameters, backend, outcome, seconds))
        try:
            write(Path(self.folder), cases)
        except OSError as error:  # as good a run as without a report
            terminalreporter.write_line(f"{VARIABLE}: not written: {error}")
