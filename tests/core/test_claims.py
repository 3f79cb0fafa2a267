"""Every claim of the README's tables and of its promises names tests that are there (tests/claims.toml).

Whether they ran on the backends for which it is claimed says the run itself: tests/ran.py.
"""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
CLAIMS: dict[str, dict[str, list[str]]] = tomllib.loads((ROOT / "tests/claims.toml").read_text())
"""`{claim: {test: backends on which it must pass}}`."""
BACKENDS = ["torch", "tf2", "jax"]
SUITES = ROOT / "core/plugrad/testing"
"""Where the functions of a file are that has `import *`."""


def rows(head: str) -> dict[str, list[str]]:
    """A table of the README by its first line: row -> its other cells."""
    table = README.split(head)[1].split("\n\n")[0].split("\n<!--")[0]
    cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:])
    return {name: answers for name, *answers in cells}


HERE = rows("|  | torch | tf2 | jax |")
COMPARED = rows("| | plugrad | RLlib's Learner |")
PROMISES = re.findall(
    r"^- (.*)[,.]$", README.split("All backends also support:")[1].split("## ")[0], re.MULTILINE
)


def test_every_claim_has_tests() -> None:
    assert len(HERE) > 15
    assert len(PROMISES) == 6
    assert all(answers[0].startswith("yes") for answers in COMPARED.values())
    assert [*CLAIMS] == [*HERE, *PROMISES, *COMPARED]
    assert all(CLAIMS.values())


@pytest.mark.parametrize("claim", [*HERE, *PROMISES])
def test_a_claim_has_tests_on_each_backend_that_it_is_for(claim: str) -> None:
    answers = HERE.get(claim, ["yes"] * len(BACKENDS))
    claimed = {backend for backend, answer in zip(BACKENDS, answers, strict=True) if answer == "yes"}
    assert set().union(*CLAIMS[claim].values()) | of_brackets(claim) == claimed


def of_brackets(claim: str) -> set[str]:
    """Backends that a test has as another parameter, which its brackets name."""
    return {name for test in CLAIMS[claim] for name in BACKENDS if test.endswith(f"[{name}]")}


@pytest.mark.parametrize("test", sorted({test for tests in CLAIMS.values() for test in tests}))
def test_a_test_that_holds_a_claim_is_there_and_runs_with_all(test: str) -> None:
    file, name = test.partition("[")[0].split("::")
    text = (ROOT / file).read_text()
    if "import *" in text:
        text += "".join(path.read_text() for path in SUITES.rglob("*.py"))
    found = re.search(rf"((?:^@.*\n(?:[ )].*\n)*)*)^def {name}\(", text, re.MULTILINE)
    assert found is not None, f"{test} is not there any more"
    assert not found[1].startswith("@pytest.mark.long"), f"{test} does not run with all tests"
