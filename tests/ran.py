"""What a run of the tests ran: cases by file and backend, functions on all three backends, and claims.

    PLUGRAD_TEST_REPORT=FOLDER tox      # tests/run_report.py writes one file for each pytest that tox starts
    python tests/ran.py FOLDER
    python tests/ran.py FOLDER --at-least 95 --claims tests/claims.toml

Of a function for torch, tf2 and jax there are cases on each of them, whether they ran or were left out. One that is
skipped on a backend whenever it is taken there is not for all three: the backend lacks what it is about.
"""

import argparse
import json
import os
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

BACKENDS = ("torch", "tf2", "jax")
LEFT, SKIPPED, PASSED, FAILED = OUTCOMES = ("left out", "skipped", "passed", "failed")
"""In this order: of several environments, a case has the last outcome that one of them gave it."""
RAN = (PASSED, FAILED)


@dataclass
class Case:
    """One case of a test function, as one run of pytest had it.

    Args:
        file: relative to the root, such as "tests/backends/test_walk.py".
        function: its name, with its class if it has one.
        parameters: what pytest writes in brackets, such as "torch-auto".
        backend: its parameter `backend`; empty if it has none.
        outcome: one of `OUTCOMES`.
        seconds: of set-up, call and tear-down.
    """

    file: str
    function: str
    parameters: str
    backend: str
    outcome: str = LEFT
    seconds: float = 0.0


def write(folder: Path, cases: Iterable[Case]) -> None:
    """The report of one run of pytest, which is one of several of its tox environment."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{os.environ.get('TOX_ENV_NAME', 'pytest')}-{os.getpid()}.json"
    (folder / name).write_text(json.dumps([asdict(case) for case in cases]))


def read(folder: Path) -> list[Case]:
    """Each case once, with one outcome of all environments."""
    merged: dict[tuple[str, str, str], Case] = {}
    for path in sorted(folder.glob("*.json")):
        for case in (Case(**each) for each in json.loads(path.read_text())):
            known = merged.setdefault((case.file, case.function, case.parameters), case)
            if OUTCOMES.index(case.outcome) > OUTCOMES.index(known.outcome):
                known.outcome, known.seconds = case.outcome, case.seconds
    return [*merged.values()]


def by_file(cases: list[Case]) -> list[str]:
    """A table: of each file and backend how many cases ran, of how many."""
    columns = sorted(
        {case.backend for case in cases},
        key=lambda name: (BACKENDS.index(name) if name in BACKENDS else 9, name),
    )
    total = Counter((case.file, case.backend) for case in cases)
    ran = Counter((case.file, case.backend) for case in cases if case.outcome in RAN)
    lines = [
        f"{'cases that ran, of how many':60}" + "".join(f"{name or 'no backend':>12}" for name in columns)
    ]
    for file in sorted({case.file for case in cases}):
        cells = [f"{ran[file, name]}/{total[file, name]}" if total[file, name] else "" for name in columns]
        lines.append(f"{file:60}" + "".join(f"{cell:>12}" for cell in cells))
    return lines


def on_all_three(cases: list[Case]) -> tuple[float, list[str]]:
    """Of the functions for three backends, the percentage that ran on all three; and lines that say so."""
    outcomes: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for case in cases:
        outcomes[f"{case.file}::{case.function}"][case.backend].add(case.outcome)
    number, lacking, short = Counter[int](), 0, list[str]()
    for name, found in sorted(outcomes.items()):
        if not {*BACKENDS} <= {*found}:
            continue
        if any(SKIPPED in found[each] and not found[each] & {*RAN} for each in BACKENDS):
            lacking += 1
            continue
        missing = [each for each in BACKENDS if not found[each] & {*RAN}]
        number[len(BACKENDS) - len(missing)] += 1
        if missing:
            short.append(f"    not on {', '.join(missing)}: {name}")
    functions = number.total()
    percentage = 100 * number[3] / functions if functions else 0.0
    return percentage, [
        f"functions for torch, tf2 and jax: {functions}",
        *(
            f"  ran on {name}: {number[n]}"
            for n, name in ((3, "all three"), (2, "two"), (1, "one"), (0, "none"))
        ),
        f"  on all three: {percentage:.1f} %",
        *short,
        f"  not counted, since a backend lacks what they are about: {lacking}",
    ]


def claims_that_ran(cases: list[Case], path: Path) -> tuple[bool, list[str]]:
    """Whether the tests of all claims passed where they are claimed; and a line for each claim.

    Args:
        cases: of all environments.
        path: TOML, `{claim: {test: backends}}`. A test is "FILE::FUNCTION", or "FILE::FUNCTION[ppo-auto]" for those of
            its cases that have these parameters. Without backends it is enough that it passed somewhere.
    """
    all_shown, lines = True, []
    for claim, tests in tomllib.loads(path.read_text()).items():
        missing = []
        for test, backends in tests.items():
            name, _, parameters = test.rstrip("]").partition("[")
            wanted = {*parameters.split("-")} - {""}
            outcomes: defaultdict[str, set[str]] = defaultdict(set)
            for case in cases:
                if f"{case.file}::{case.function}" == name and wanted <= {*case.parameters.split("-")}:
                    outcomes[case.backend if backends else ""].add(case.outcome)
            lacking = [
                each for each in backends or [""] if FAILED in outcomes[each] or PASSED not in outcomes[each]
            ]
            if lacking:
                missing.append(f"    {test} did not pass on {', '.join(lacking)}".removesuffix(" on "))
        lines += [f"  {'NOT SHOWN' if missing else 'shown'}: {claim}", *missing]
        all_shown = all_shown and not missing
    return all_shown, ["claims", *lines]


def main() -> int:
    """Print the summary of a folder; 1 if less ran than was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="what PLUGRAD_TEST_REPORT named")
    parser.add_argument(
        "--at-least", type=float, default=0.0, metavar="PERCENT", help="of functions, on all three backends"
    )
    parser.add_argument(
        "--claims", type=Path, metavar="FILE", help="claims and their tests; each must have passed"
    )
    asked = parser.parse_args()
    cases = read(asked.folder)
    if not cases:
        parser.error(f"{asked.folder} has no report: was PLUGRAD_TEST_REPORT set to it?")
    percentage, functions = on_all_three(cases)
    all_shown, claims = claims_that_ran(cases, asked.claims) if asked.claims else (True, [])
    print(*by_file(cases), *functions, *claims, sep="\n")
    return 0 if percentage >= asked.at_least and all_shown else 1


if __name__ == "__main__":
    raise SystemExit(main())
