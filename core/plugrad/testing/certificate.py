"""What a certificate says: the outcome of each test, and which capabilities they prove."""

import platform
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

from plugrad.contract import CONTRACT_VERSION
from plugrad.hooks.backend_spec import BackendInfo, Capability

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
