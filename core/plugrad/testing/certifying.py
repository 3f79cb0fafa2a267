"""A pytest plugin that proves one plugin and writes its certificate: `plugrad certify` runs pytest with it.

pytest -p plugrad.testing.fixtures -p plugrad.testing.certifying --certify NAME --certificate FILE SUITE
"""

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from plugrad.contract import CONTRACT_VERSION
from plugrad.hooks.backend_spec import BackendInfo, Capability
from plugrad.hooks.manager import Plugin
from plugrad.hooks.registry import load_algorithm, load_backend, use_plugin
from plugrad.importing.names import is_local_plugin
from plugrad.testing.fixtures import ASKED, NOT_PROVEN, installed_backends
from plugrad.testing.tiny_learners import tiny_learner

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
PROVEN, NOT_DECLARED = "proven", "not declared"


class Outcome(NamedTuple):
    """Of one test.

    Args:
        result: "passed", "failed" or "skipped".
        reason: why it failed or was skipped, in one line.
        asked: capabilities that it is about.
        left_open: skipped since it is about what the plugin does not claim.
    """

    result: str
    reason: str = ""
    asked: tuple[str, ...] = ()
    left_open: bool = False

    def __str__(self) -> str:
        return f"{self.result}: {self.reason}" if self.reason else self.result


Outcomes = Mapping[str, Outcome]
"""By the names of the tests."""


def verdict(
    capability: Capability, info: BackendInfo, outcomes: Outcomes, why_not: Callable[..., str]
) -> str:
    """Whether tests prove a capability.

    Args:
        capability: the capability.
        info: of the backend.
        outcomes: of all tests that ran.
        why_not: `why_not(capability)`, why the suite's learners do not have it; "" if they do.

    Returns:
        "proven", "not declared", or "not proven: " and why.
    """
    if capability not in info.capabilities:
        return NOT_DECLARED
    about = {name: each for name, each in outcomes.items() if capability in each.asked and not each.left_open}
    wrong = [f"{name} {each}" for name, each in about.items() if each.result != PASSED]
    if wrong:
        more = f" ({len(wrong)} tests in all)" if len(wrong) > 1 else ""
        return f"not proven: {wrong[0]}{more}"
    if about:
        return PROVEN
    return f"not proven: {why_not(capability) or 'no test that is about it could run'}"


def certificate(
    kind: str, name: str, backends: Mapping[str, BackendInfo], outcomes: Outcomes
) -> dict[str, Any]:
    """A certificate as JSON has it, without capabilities.

    Args:
        kind: "backend" or "algorithm".
        name: of the plugin.
        backends: those that it was tested on, by name.
        outcomes: by the names of the tests.

    Returns:
        What was tested, with what, and the outcome of each test.
    """
    frameworks = {each.name: each.version for each in backends.values()}
    return {
        kind: name,
        "contract_version": CONTRACT_VERSION,
        "versions": {"plugrad": version("plugrad"), "Python": platform.python_version(), **frameworks},
        "machine": f"{platform.system()} {platform.machine()}",
        "tests": {test: str(outcome) for test, outcome in outcomes.items()},
    }


LOADERS = {"backend": load_backend, "algorithm": load_algorithm}


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `plugrad certify` says to the process that it starts."""
    group = parser.getgroup("plugrad certify")
    group.addoption("--certify", metavar="NAME", help="a short name or a file")
    group.addoption("--certify-kind", choices=list(LOADERS), default="backend")
    group.addoption("--certificate", metavar="FILE", type=Path, help="where the certificate is written")


def pytest_configure(config: pytest.Config) -> None:
    """Load the plugin, the fixtures of its author, and what gives the suite its name."""
    name = config.getoption("certify")
    plugin = use_plugin(name) if is_local_plugin(name) else LOADERS[config.getoption("certify_kind")](name)
    modules = [*_with_fixtures(plugin), _with_name(plugin.tier, plugin.name)]
    for module in modules:
        config.pluginmanager.register(module, module.__name__)
    config.pluginmanager.register(Recorder(plugin, config.getoption("certificate")))


def _with_fixtures(plugin: Plugin) -> Sequence[ModuleType]:
    """The module `testing` of the plugin's package, or the file that the plugin is in."""
    found = plugin.implementation
    module = found if isinstance(found, ModuleType) else import_module(type(found).__module__)
    if module.__name__.endswith(".py"):
        return [module]
    beside = f"{module.__package__}.testing"
    if not (module.__package__ and find_spec(beside)):
        return []
    try:
        return [import_module(beside)]
    except ImportError as error:
        raise pytest.UsageError(
            f"{plugin}: its fixtures cannot be loaded: {beside} fails to import: {type(error).__name__}: {error}. "
            "Install what it needs, or import that in the fixtures that use it"
        ) from error


def _with_name(kind: str, name: str) -> ModuleType:
    """A pytest plugin whose fixture, `backend` or `algorithm`, says what is certified."""
    module = ModuleType(f"{kind} {name}")
    vars(module)[kind] = pytest.fixture(scope="session", name=kind)(lambda: name)
    return module


class Recorder:
    """Keeps the outcome of each test, and writes the certificate at the end.

    Args:
        plugin: the one that is certified.
        path: where.
    """

    def __init__(self, plugin: Plugin, path: Path) -> None:
        self._plugin, self._path = plugin, path
        self._outcomes: dict[str, Outcome] = {}
        self._is_whole = True

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """A part of the suite proves nothing."""
        self._is_whole = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The worst of a test's phases counts."""
        name = report.nodeid.partition("::")[2]
        if self._outcomes.get(name, Outcome(PASSED)).result == PASSED:
            self._outcomes[name] = outcome(report)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write it; a test that was collected and did not run is not in it."""
        kind, name = self._plugin.tier, self._plugin.name
        backends = (
            {name: _info(name)} if kind == "backend" else {each: _info(each) for each in installed_backends()}
        )
        found = certificate(kind, name, backends, self._outcomes)
        claims = self._capabilities(backends[name]) if kind == "backend" else {}
        is_proven = self._is_whole and exitstatus == pytest.ExitCode.OK
        is_proven &= len(self._outcomes) == session.testscollected > 0
        is_proven &= all(each.result == PASSED or each.left_open for each in self._outcomes.values())
        is_proven &= {*claims.values()} <= {PROVEN, NOT_DECLARED}
        found |= {"capabilities": claims} if kind == "backend" else {}
        found |= {"proven": is_proven}
        self._path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")

    def _capabilities(self, info: BackendInfo) -> dict[str, str]:
        def why_not(capability: Capability) -> str:
            if capability not in info.conditions:
                return ""  # a learner might not even be built
            learner = tiny_learner(info.name)
            return info.why_not(capability, learner.ops, learner.config)

        return {str(each): verdict(each, info, self._outcomes, why_not) for each in sorted(Capability)}


def _info(backend: str) -> BackendInfo:
    info: BackendInfo = load_backend(backend).implementation.backend_info()
    return info


def outcome(report: pytest.TestReport) -> Outcome:
    """What a certificate keeps of a test's report."""
    asked = tuple(str(value) for key, value in report.user_properties if key == ASKED)
    if report.outcome == SKIPPED and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        return Outcome(SKIPPED, reason, asked, left_open=reason.startswith(NOT_PROVEN))
    if report.outcome == PASSED:
        return Outcome(PASSED, asked=asked)
    return Outcome(FAILED, _last_words(report), asked)


def _last_words(report: pytest.TestReport) -> str:
    """The error, in one line and without places in files."""
    crash: Any = getattr(report.longrepr, "reprcrash", None)
    return " ".join(str(crash.message if crash else report.longrepr).split())[:300]
