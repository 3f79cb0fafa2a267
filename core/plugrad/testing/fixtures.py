"""A pytest plugin for authors of plugins: what the suites ask for, and a last word on what they did not prove.

    # conftest.py
    import pytest

    pytest_plugins = ["plugrad.testing.fixtures"]


    @pytest.fixture(scope="session")
    def backend():
        return "mine"  # of backend_suite; of algorithm_suite: def algorithm()

A test that needs what a backend does not declare in `BackendInfo.capabilities` is skipped by `requires`, and the end of
the run says so. Knows no framework.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest

from plugrad.hooks.backend_spec import BackendInfo
from plugrad.hooks.registry import list_plugins, load_backend
from plugrad.ops import Ops

pytest.register_assert_rewrite("plugrad.testing.backend_suite", "plugrad.testing.algorithm_suite")

NOT_PROVEN = "not proven: "
REFERENCE = "numpy"


def installed_backends() -> list[str]:
    """Names of the backends whose framework is here; the reference only if there is no other."""
    names = [record.name for record in list_plugins() if record.kind == "backend" and record.installed]
    return [name for name in names if name != REFERENCE] or [REFERENCE]


@pytest.fixture(scope="session", params=installed_backends())
def backend(request: pytest.FixtureRequest) -> str:
    """The short name of a backend: every installed one, unless your conftest.py says which."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def algorithm() -> str:
    """The short name of the algorithm that `algorithm_suite` proves: your conftest.py says it."""
    raise pytest.UsageError(
        "which algorithm? Write in conftest.py:\n"
        '@pytest.fixture(scope="session")\ndef algorithm():\n    return "the name of its entry point"'
    )


# Of no wider scope than a test: pytest would keep them when a folder or module says another backend.
@pytest.fixture
def backend_info(backend: str) -> BackendInfo:
    """What the backend says of itself."""
    info: BackendInfo = load_backend(backend).implementation.backend_info()
    return info


@pytest.fixture
def ops(backend: str) -> Ops:
    """The backend's tensor functions, as a learner gets them."""
    return _ops(backend)


@cache
def _ops(backend: str) -> Ops:
    from plugrad.testing.tiny_learners import tiny_learner  # late, so that coverage sees the core imported

    return tiny_learner(backend).ops


@pytest.fixture
def native_optimizer(backend_info: BackendInfo) -> Callable[[Sequence[Any], float], Any]:
    """`native_optimizer(params, lr)`: your framework's plain gradient descent, in several groups if it has groups.

    Only of a backend that declares "native_optimizers", whose conftest.py then says how one is made.
    """
    requires(backend_info, "native_optimizers")
    raise pytest.UsageError(
        f"backend {backend_info.name!r} declares 'native_optimizers': write a fixture native_optimizer in conftest.py "
        "that returns a function (params, lr) -> your framework's plain gradient descent"
    )


def requires(info: BackendInfo, capability: str) -> None:
    """Skip the running test unless the backend declares this capability."""
    if capability not in info.capabilities:
        leave_unproven(f"backend {info.name!r} does not declare {capability!r}")


def leave_unproven(reason: str) -> None:
    """Skip the running test; the end of the run repeats the reason."""
    pytest.skip(NOT_PROVEN + reason)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what was not proven, and how many tests are about it."""
    unproven = Counter(
        reason
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple) and NOT_PROVEN in (reason := report.longrepr[2])
    )
    if unproven:
        terminalreporter.section("not proven by plugrad's suites")
    for reason, number in sorted(unproven.items()):
        terminalreporter.line(f"{reason.partition(NOT_PROVEN)[2]} ({number} test{'s' * (number > 1)})")
