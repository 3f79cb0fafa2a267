"""Mutants that a test killed before: does it still? `.ci/run` tries three, which the commit draws.

    python tests/dying_mutants.py --seed HEAD --number 3
    python tests/dying_mutants.py --add mutants.jsonl  # what died in a run of tests/mutants.py with --results

Of all mutants some live that nobody can notice, and a draw of them would fail a run by chance. So
`dying_mutants.jsonl` lists mutants, each with the test that noticed it, and only this test runs: if a mutant lives now,
its test has become weaker. One whose lines or whose test are no longer there is passed over.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from mutant_runs import KILLED, Trials
from mutant_sites import Site, sites_in
from mutants import REPOSITORY, diff, identity, seed_of

LIST = Path(__file__).with_name("dying_mutants.jsonl")


@dataclass(frozen=True)
class Dying:
    """A mutant that died.

    Args:
        path: the file, relative to the repository.
        operator: the mistake.
        before: the whole lines that it changes.
        after: what becomes of them.
        by: the test that failed.
    """

    path: str
    operator: str
    before: str
    after: str
    by: str

    @classmethod
    def of(cls, site: Site, text: str, by: str) -> "Dying":
        """The mutant at a site of a source text."""
        code, changed = text.encode(), site.changed(text).encode()
        start, end = code.rfind(b"\n", 0, site.start) + 1, code.find(b"\n", site.end)
        before, after = code[start:end], changed[start : end + len(changed) - len(code)]
        return cls(site.path, site.operator, before.decode(), after.decode(), by)

    def site(self, root: Path) -> Site | None:
        """Where a checkout has it: at the first of equal lines; None if these lines or the test are gone."""
        file, _, function = self.by.partition("[")[0].partition("::")
        source, test = root / self.path, root / file
        if not (
            source.exists() and test.exists() and f"def {function.rpartition('::')[2]}(" in test.read_text()
        ):
            return None
        text = source.read_text(encoding="utf-8")
        return next(
            (each for each in sites_in(self.path, text) if Dying.of(each, text, self.by) == self), None
        )


def read(path: Path = LIST) -> list[Dying]:
    """The list."""
    return [Dying(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def draw(among: list[Dying], root: Path, seed: int, number: int) -> list[tuple[Dying, Site]]:
    """Different ones of those that a checkout has; equal seeds draw equal ones."""
    shuffled = Random(seed).sample(among, len(among))
    there = ((each, site) for each in shuffled if (site := each.site(root)) is not None)
    return [found for found, _ in zip(there, range(number), strict=False)]


def died(results: Path, root: Path) -> list[Dying]:
    """What a test killed, of a file that `tests/mutants.py --results` has written of this checkout."""
    found = []
    for each in map(json.loads, results.read_text(encoding="utf-8").splitlines()):
        path = each["site"].rpartition(":")[0]
        text = (root / path).read_text(encoding="utf-8")
        sites = [site for site in sites_in(path, text) if identity(root, site) == each["mutant"]]
        if each["kind"] == KILLED and "::" in each["by"]:
            found += [Dying.of(site, text, each["by"]) for site in sites]
    return found


def main() -> int:
    """One if a mutant lives, or none of the list is in this checkout."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--seed", type=seed_of, default=0, help="of the draw: a number or a commit (default 0)"
    )
    parser.add_argument("--number", type=int, default=3, help="how many are drawn (default 3)")
    parser.add_argument(
        "--limit", type=float, default=300.0, help="seconds for each; what takes longer lives"
    )
    parser.add_argument("--add", type=Path, metavar="RESULTS", help="put into the list what died in a run")
    asked = parser.parse_args()
    if asked.add:
        listed = {*(read() if LIST.exists() else []), *died(asked.add, REPOSITORY)}
        lines = sorted(json.dumps(asdict(each)) for each in listed)
        LIST.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return 0
    living = 0
    with TemporaryDirectory(prefix="mutants-") as scratch:
        trials = Trials(REPOSITORY, Path(scratch), "torch", asked.limit)
        drawn = draw(read(), REPOSITORY, asked.seed, asked.number)
        for dying, site in drawn:
            outcome = trials.try_site(site, dying.by)
            living += outcome.kind != KILLED
            print(f"{site.operator}, {site.path}:{site.line}: {outcome.kind} by {dying.by}", flush=True)
            if outcome.kind != KILLED:
                print(diff(REPOSITORY, site), end="")
    print(f"killed {len(drawn) - living} of {len(drawn)} drawn")
    if len(drawn) < asked.number:
        print(f"{LIST.name} has no more of this checkout: --add what dies in a run of tests/mutants.py")
    return int(living > 0 or not drawn)


if __name__ == "__main__":
    sys.exit(main())
