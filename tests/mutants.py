"""Make mistakes in the source text one at a time, and see whether the tests notice.

    python tests/mutants.py --list                           # how many sites each mistake has in each package
    python tests/mutants.py --seed 1 --number 120 --show     # the diffs of a draw
    python tests/mutants.py --seed 1 --number 120 --run --results mutants.jsonl

A mutant is this checkout with one mistake, at one of the sites of `mutant_sites.py`. A draw takes a package in
proportion to its lines, then one of the mistakes that it has sites of, then a site. The first mutants of a larger draw
are those of a smaller one.

`--run` copies the checkout and runs the tests that pass through the place (`mutant_runs.py`): tests/core without a
framework, the others on one backend. A test kills a mutant if it fails, or hangs, with the mistake and passes without.
Exit status 1 if any mutant lives; one whose tests were not done within `--limit` decides nothing. What is in
`--results` is not tried again, so a run that was stopped goes on; what was not done is tried with a longer `--limit`.

With `--within SECONDS` a draw passes over those that the table has no tests of, or tests that take longer together, and
no others run: each is decided soon. One that survives these may die by others, such as tests of groups.
"""

import argparse
import difflib
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from zlib import crc32

from mutant_runs import KILLED, UNFINISHED, Outcome, Trials, place_in
from mutant_sites import OPERATORS, Site, sites_in
from tests_of import Table

REPOSITORY = Path(__file__).parents[1]
CORE = "plugrad"


@dataclass(frozen=True)
class Package:
    """A package and where mistakes can be made in it.

    Args:
        name: such as "plugrad_ppo".
        lines: of its source text.
        sites: `{mistake: sites}`, without those that it has no sites of.
    """

    name: str
    lines: int
    sites: dict[str, list[Site]]


def packages(root: Path, names: Sequence[str] = ()) -> list[Package]:
    """The core, each backend and each plugin of a checkout.

    Args:
        root: the checkout.
        names: of the packages that are asked for; without any, all.

    Raises:
        ValueError: there is no package of a name.
    """
    folders = {each.parent.name: each.parent for each in sorted(root.glob("*/plugrad*/__init__.py"))}
    if unknown := sorted({*names} - {*folders}):
        raise ValueError(f"no package {', '.join(unknown)}; there are {', '.join(folders)}")
    found = []
    for name in (each for each in folders if each in names or not names):
        # Templates are code of other distributions, which `plugrad new-plugin` copies.
        paths = [each for each in sorted(folders[name].rglob("*.py")) if "templates" not in each.parts]
        sites: dict[str, list[Site]] = {operator: [] for operator in OPERATORS}
        lines = 0
        for path in paths:
            text = path.read_text(encoding="utf-8")
            lines += len(text.splitlines())
            for site in sites_in(path.relative_to(root).as_posix(), text):
                sites[site.operator].append(site)
        found.append(Package(name, lines, {operator: each for operator, each in sites.items() if each}))
    return found


def decided_within(seconds: float, table: Table, root: Path) -> Callable[[Site], bool]:
    """Whether the table has tests of a mistake, and all of them take no longer together.

    Args:
        seconds: for the tests of one mistake.
        table: which tests pass through a function, and how long they take.
        root: the checkout.
    """

    def is_decided_soon(site: Site) -> bool:
        path, function = place_in(table, root, site)
        tests = table.tests_of(path, [function] if function else None)
        return bool(tests) and table.within(tests, seconds) == tests

    return is_decided_soon


def draw(
    among: Sequence[Package], seed: int, number: int, allowed: Callable[[Site], bool] = lambda _: True
) -> list[Site]:
    """Different sites: a package in proportion to its lines, then a mistake, then a site.

    Args:
        among: the packages.
        seed: equal ones draw equal sites.
        number: how many.
        allowed: others are passed over.

    Raises:
        ValueError: there are not as many.
    """
    rng, drawn = Random(seed), list[Site]()
    rest = [{operator: list(sites) for operator, sites in each.sites.items()} for each in among]
    while len(drawn) < number:
        open_ = [n for n, sites in enumerate(rest) if sites]
        if not open_:
            raise ValueError(f"{number} mutants are asked for; there are {len(drawn)} sites")
        (chosen,) = rng.choices(open_, [among[n].lines for n in open_])
        operator = rng.choice(list(rest[chosen]))
        sites = rest[chosen][operator]
        site = sites.pop(rng.randrange(len(sites)))
        if allowed(site):
            drawn.append(site)
        if not sites:
            del rest[chosen][operator]
    return drawn


def diff(root: Path, site: Site) -> str:
    """The lines that a mistake changes, with two of what is around them."""
    text = (root / site.path).read_text(encoding="utf-8")
    before, after = text.splitlines(keepends=True), site.changed(text).splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, after, site.path, site.path, n=2))


def table(among: Sequence[Package]) -> Iterator[str]:
    """Lines: the sites of each mistake in each package."""

    def line(title: str, cells: Iterable[object]) -> str:
        return " ".join([f"{title:23}", *(f"{cell!s:>11}" for cell in cells)])

    yield line("", (each.name.removeprefix("plugrad_") for each in among))
    for operator in OPERATORS:
        yield line(operator, (len(each.sites.get(operator, ())) for each in among))
    yield line("lines", (each.lines for each in among))


def identity(root: Path, site: Site) -> str:
    """Of a mutant in a file of results: another one as soon as the file that it changes is another one."""
    text = (root / site.path).read_bytes()
    return f"{site.path}:{site.start}-{site.end} {site.operator} {crc32(text + site.new.encode()):08x}"


def known_outcomes(path: Path | None) -> dict[str, Outcome]:
    """`{identity: outcome}` of a file of results, which need not be there."""
    lines = path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []
    names = [field.name for field in fields(Outcome)]
    return {
        each["mutant"]: Outcome(**{name: each[name] for name in names}) for each in map(json.loads, lines)
    }


def run(sites: Sequence[Site], seed: int, asked: argparse.Namespace) -> int:
    """Try each mutant; how many live."""
    known, outcomes = known_outcomes(asked.results), list[Outcome]()
    with TemporaryDirectory(prefix="mutants-", dir=asked.scratch) as scratch:
        only_traced = asked.within is not None
        trials = Trials(REPOSITORY, Path(scratch), asked.backend, asked.limit, only_traced=only_traced)
        for n, site in enumerate(sites, 1):
            name = identity(REPOSITORY, site)
            outcome = known.get(name)
            if outcome is None or (outcome.kind == UNFINISHED and outcome.seconds < asked.limit):
                outcome = trials.try_site(site)
                if asked.results:
                    place = {
                        "seed": seed,
                        "number": n,
                        "operator": site.operator,
                        "site": f"{site.path}:{site.line}",
                    }
                    with asked.results.open("a", encoding="utf-8") as file:
                        print(json.dumps(place | vars(outcome) | {"mutant": name}), file=file)
            outcomes.append(outcome)
            told = f"{outcome.kind}{f' by {outcome.by}' if outcome.by else ''} ({outcome.seconds:.0f} s)"
            print(f"{n} of {len(sites)}  {site.operator}, {site.path}:{site.line}: {told}", flush=True)
    counts = Counter(each.kind for each in outcomes)
    for site, outcome in zip(sites, outcomes, strict=True):
        if outcome.kind != KILLED:
            print(f"\n{outcome.kind}: {site.operator}\n{diff(REPOSITORY, site)}", end="")
    others = "".join(f", {count} {kind}" for kind, count in counts.items() if kind != KILLED)
    print(f"\nkilled {counts[KILLED]} of {len(sites)} drawn{others}")
    return len(sites) - counts[KILLED] - counts[UNFINISHED]


def seed_of(text: str) -> int:
    """A number, or that of a commit: each commit draws others."""
    if text.isdigit():
        return int(text)
    done = subprocess.run(
        ["git", "rev-parse", "--short=8", text], cwd=REPOSITORY, capture_output=True, text=True
    )
    if done.returncode:
        raise argparse.ArgumentTypeError(f"neither a number nor a commit: {text}")
    return int(done.stdout, 16)


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    doing = parser.add_mutually_exclusive_group(required=True)
    doing.add_argument("--list", action="store_true", help="count the sites by mistake and package")
    doing.add_argument("--show", action="store_true", help="print the diffs of a draw")
    doing.add_argument("--run", action="store_true", help="run the tests on each mutant of a draw")
    parser.add_argument(
        "--seed", type=seed_of, default=0, help="of the draw: a number or a commit (default 0)"
    )
    parser.add_argument("--number", type=int, default=120, help="how many mutants are drawn (default 120)")
    parser.add_argument(
        "--packages", nargs="+", default=(), metavar="NAME", help=f"only these, such as {CORE} plugrad_torch"
    )
    parser.add_argument("--backend", default="torch", help="what tests of backends run on (default torch)")
    parser.add_argument(
        "--limit", type=float, default=900.0, help="seconds for all tests of one mutant (default 900)"
    )
    parser.add_argument(
        "--within",
        type=float,
        metavar="SECONDS",
        help="draw of mutants whose tests in the table take no longer together, and run no others",
    )
    parser.add_argument("--results", type=Path, help="a JSON lines file: what it has is not tried again")
    parser.add_argument("--scratch", type=Path, help="a folder for the copies of the checkout")
    asked = parser.parse_args()
    try:
        among = packages(REPOSITORY, asked.packages)
        within = () if asked.within is None else (decided_within(asked.within, Table.read(), REPOSITORY),)
        sites = [] if asked.list else draw(among, asked.seed, asked.number, *within)
    except ValueError as error:
        parser.error(str(error))
    if asked.list:
        print(*table(among), sep="\n")
    elif asked.show:
        for site in sites:
            print(f"{site.operator}\n{diff(REPOSITORY, site)}")
    # So that what a test started ends with this, and the copies go.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return bool(asked.run and run(sites, asked.seed, asked))


if __name__ == "__main__":
    sys.exit(main())
