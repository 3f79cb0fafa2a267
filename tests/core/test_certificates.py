"""The certificates of the release: of the present suite and contract, and of backends that are proven."""

import json
import subprocess
import sys

import pytest
from certificates_page import PAGE, SUITE, page_text, read_certificates
from certify_all import COMMAND, NAMES, REPORTS

from plugrad import CONTRACT_VERSION
from plugrad.hooks.backend_spec import Capability


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all tests of the backend suite."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "test_suite.py").write_text("from plugrad.testing.backend_suite import *\n")
    plugins = ("-p", "plugrad.testing.fixtures", "-p", "plugrad.testing.certifying", "-p", "no:cacheprovider")
    about = ("--certify", "numpy", "--certificate", "none.json", "--collect-only", "-q")
    command = [sys.executable, "-m", "pytest", "-c", "pytest.ini", "--rootdir", ".", *plugins, *about]
    (folder / "pytest.ini").write_text("[pytest]\n")
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    return {line.partition("::")[2] for line in said.splitlines() if "::" in line}


@pytest.mark.parametrize("name", NAMES)
def test_a_certificate_is_of_the_present_suite(name: str, suite: set[str]) -> None:
    report = json.loads((REPORTS / f"{name}.json").read_text())
    tests = {*report["tests"]}
    assert tests == suite, f"new: {suite - tests}, gone: {tests - suite}. Run: {COMMAND} {name}"
    assert report["contract_version"] == CONTRACT_VERSION
    assert {*report["capabilities"]} == {*map(str, Capability)}


@pytest.mark.parametrize("name", NAMES)
def test_what_a_backend_declares_is_proven(name: str) -> None:
    text = (REPORTS / f"{name}.json").read_text()
    report = json.loads(text)
    assert report["proven"] is True
    assert {*report["capabilities"].values()} <= {"proven", "not declared"}
    assert report["backend"] == name
    assert {"plugrad", "Python"} < {*report["versions"]}
    assert "/" not in "".join(report["versions"].values())


def test_the_page_is_made_of_the_certificates(suite: set[str]) -> None:
    assert PAGE.read_text() == page_text(read_certificates()), "run: python tests/certificates_page.py"
    scenarios = {name.partition("[")[0].removeprefix("test_") for name in suite}
    shown = {line.split("|")[1].strip() for line in PAGE.read_text().splitlines() if line.startswith("| ")}
    missing = {
        each for each in scenarios if each.replace("_", " ").replace(" users ", " user's ") not in shown
    }
    assert missing == set(), f"a file of {SUITE} that the page does not name"
