"""Makes a test that is skipped for a reason which is not listed here fail: a skip must not pass for a pass."""

import os
import sys
from collections.abc import Generator
from typing import Any

import pytest
from needs import NO_BACKEND, NO_EXTRA, NO_GPU, NO_GPU_OF_JAX, NO_LAUNCHER, NO_MACHINES, NO_ROOT, NO_STAND_IN

NOT_DECLARED = {
    "numpy": "batched_learners, changed_losses, complete_update, exact_kinks, fused_step, native_optimizers, onnx, "
    "user_modules, xla",
    "tf2": "fused_step",
    "jax": "changed_losses, float64, fused_step, onnx",
    "torch": "batched_learners, xla",
}
"""Capabilities that a backend may lack. Whoever takes one away from a backend must say so here."""
NOT_TAKEN = {
    **dict.fromkeys(("dqn", "pqn", "qrdqn"), "continuous"),
    **dict.fromkeys(("td3", "tqc", "cql", "iql"), "discrete"),
}
"""Actions that an algorithm does not take."""


def allowed() -> dict[str, str]:
    """`{beginning of a reason: why it may skip a test}`."""
    reasons = {
        NO_BACKEND: "the environments of one framework; `tox -e backends` asks for all",
        NO_EXTRA: "needs.extra fails instead where every extra must be, as in `tox -e backends`",
        NO_GPU: "no machine of ours has one; what is tested so says that it has not run",
        NO_LAUNCHER: "Open MPI and SLURM are Debian's; benchmarks/RESULTS.md has the last run with them",
        NO_GPU_OF_JAX: "a second CPU stands in for it, in the same file",
    }
    if sys.platform != "linux" or os.geteuid() != 0:
        reasons[NO_MACHINES] = "network namespaces need root: elsewhere the test of two Ray nodes has to do"
    if os.geteuid() != 0:
        reasons[NO_ROOT] = "links, FIFOs and modes are tried without; the head of the run says so"
    for backend, capabilities in NOT_DECLARED.items():
        for capability in capabilities.split(", "):
            reasons[f"not proven: backend {backend!r} does not declare {capability!r}"] = "it has none"
    for algorithm, actions in NOT_TAKEN.items():
        reasons[f"not proven: algorithm {algorithm!r} takes no {actions} actions"] = "it says so"
    tox_env = os.environ.get("TOX_ENV_NAME")
    if tox_env is None:
        reasons["only in tox"] = "an editable install has the source tree, and entry points of its day"
    if tox_env not in ("backends", "torch"):
        reasons[NO_STAND_IN] = "an older torch; `tox -e backends` has one that does"
    if tox_env != "lowest":
        reasons["only `tox -e lowest`"] = "it has the lowest versions"
    if tox_env != "package":
        reasons["only `tox -e package`"] = "it builds wheels"
    return reasons


def pytest_report_header() -> list[str]:
    """Say that skips are looked at, and whether this user can make what a stranger's folder may have."""
    tried = "tried, as root" if os.geteuid() == 0 else "not tried: that needs root"
    return [
        "skips: only for the reasons in tests/skips.py",
        f"device nodes and files of other users: {tried}",
    ]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Of a test, or of its fixtures."""
    report = yield
    return _judged(report)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Of a file that is skipped as a whole."""
    report = yield
    return _judged(report)


def _judged(report: Any) -> Any:
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return report
    reason = report.longrepr[2].removeprefix("Skipped: ")
    if not reason.startswith(tuple(allowed())):
        report.outcome = "failed"
        report.longrepr = f"skipped, and tests/skips.py does not allow the reason: {reason}"
    return report
