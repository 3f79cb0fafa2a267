"""Size of the core, and the way of a call of `Learner.update` through it, for several revisions side by side.

    python benchmarks/house.py HEAD~20 HEAD .

A revision is what git knows by a name; `.` is the working tree. Nothing is timed.

- *Lines* are those with code: no docstrings, comments and blank lines. The templates that `plugrad new-plugin` copies
  do not count. A package is a folder or a top-level file of the core.
- *The way of update*: a tiny PPO learner of the numpy backend updates twice, and the second call is traced. Files are
  those of plugrad, its backend and its plugins whose functions run; depth counts their functions on the stack; an edge
  leads from a file to the one that it calls, and a two-way pair is two files with an edge each way.
"""

import argparse
import ast
import io
import json
import os
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

from report import table

REPOSITORY = Path(__file__).parents[1]
WORKING_TREE = "."
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
LONGEST = 5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revisions", nargs="*", default=[WORKING_TREE])
    parser.add_argument("--trace", type=Path, help=argparse.SUPPRESS)  # what this script calls itself with
    given = parser.parse_args()
    if given.trace:
        print(json.dumps(way_of_update(given.trace)))
        return
    with ExitStack() as stack:
        folders = {each: stack.enter_context(checked_out(each)) for each in given.revisions}
        sizes = {name: lines_of_core(folder) for name, folder in folders.items()}
        ways = {name: traced(folder) for name, folder in folders.items()}
    print(as_tables(sizes, ways))


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """Yield a folder with the files of a revision."""
    if revision == WORKING_TREE:
        yield REPOSITORY
        return
    with tempfile.TemporaryDirectory() as folder:
        git("worktree", "add", "--detach", "--force", f"{folder}/house", revision)
        try:
            yield Path(folder, "house")
        finally:
            git("worktree", "remove", "--force", f"{folder}/house")


def git(*arguments: str) -> None:
    """Run git in this repository, silently."""
    subprocess.run(["git", "-C", str(REPOSITORY), *arguments], check=True, capture_output=True)


# --- lines ------------------------------------------------------------------------------------------------------------


def lines_of_core(folder: Path) -> dict[str, int]:
    """`{file of the core: lines of code}`."""
    core = folder / "core/plugrad"
    paths = [path for path in sorted(core.rglob("*.py")) if "templates" not in path.parts]
    return {str(path.relative_to(core)): lines_of_code(path.read_text(encoding="utf-8")) for path in paths}


def lines_of_code(text: str) -> int:
    """Count the lines of a file without docstrings, comments and blank ones."""
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def packages(files: Mapping[str, int]) -> Counter[str]:
    """`{package: lines}` of `{file: lines}`."""
    found: Counter[str] = Counter()
    for file, lines in files.items():
        found[file.split("/")[0].removesuffix(".py")] += lines
    return found


# --- the way of an update ---------------------------------------------------------------------------------------------


def traced(folder: Path) -> dict[str, Any]:
    """Call `way_of_update` in a process that imports plugrad from a folder."""
    roots = [str(folder / root) for root in ("core", "backends", "plugins")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(roots), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, __file__, "--trace", str(folder)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


class Trace:
    """Files, depth and edges of the calls while a profile function is set.

    Args:
        folder: files under it count.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = f"{folder.resolve()}/"
        self.files: set[str] = set()
        self.edges: set[tuple[str, str]] = set()
        self.depth = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Note a call: what `sys.setprofile` calls."""
        if event != "call" or not self._counts(frame):
            return
        stack = []
        above: FrameType | None = frame
        while above is not None:
            if self._counts(above):
                stack.append(above.f_code.co_filename)
            above = above.f_back
        self.depth = max(self.depth, len(stack))
        self.files.add(stack[0])
        self.edges |= {(caller, called) for called, caller in pairwise(stack[:2]) if caller != called}

    def _counts(self, frame: FrameType) -> bool:
        name = frame.f_code.co_filename
        return name.startswith(self._folder) and "/benchmarks/" not in name


def way_of_update(folder: Path) -> dict[str, Any]:
    """Trace the second update of a tiny PPO learner; plugrad is the one of the folder."""
    import plugrad
    from plugrad.testing.tiny_learners import OBSERVATIONS, TWO_ACTIONS, tiny_batch
    from plugrad_ppo import PPOConfig

    assert Path(plugrad.__file__).is_relative_to(folder.resolve()), plugrad.__file__
    config = PPOConfig().framework("numpy").debugging(seed=1)
    config = config.environment(observation_space=OBSERVATIONS, action_space=TWO_ACTIONS)
    config = config.rl_module(model_config={"fcnet_hiddens": [4]})
    learner = config.training(minibatch_size=8, num_epochs=1).build_learner()
    learner.update(tiny_batch())
    trace, batch = Trace(folder), tiny_batch()
    sys.setprofile(trace)
    try:
        learner.update(batch)
    finally:
        sys.setprofile(None)
    both = sum((called, caller) in trace.edges for caller, called in trace.edges) // 2
    return {
        "files": len(trace.files),
        "depth": trace.depth,
        "edges": len(trace.edges),
        "two-way pairs": both,
    }


# --- output -----------------------------------------------------------------------------------------------------------


def as_tables(sizes: Mapping[str, Mapping[str, int]], ways: Mapping[str, Mapping[str, Any]]) -> str:
    """Make Markdown tables with a column for each revision."""
    totals = [
        ("lines of code of the core", [sum(files.values()) for files in sizes.values()]),
        ("files", [len(files) for files in sizes.values()]),
        ("median of the files", [median(files.values()) for files in sizes.values()]),
        *(
            (f"{n + 1}. longest file", [longest(files)[n] for files in sizes.values()])
            for n in range(LONGEST)
        ),
        *((f"update: {what}", [way[what] for way in ways.values()]) for what in next(iter(ways.values()))),
    ]
    by_package = {name: packages(files) for name, files in sizes.items()}
    names = sorted({package for found in by_package.values() for package in found})
    lines = [(package, *(found.get(package, "") for found in by_package.values())) for package in names]
    return "\n\n".join(
        (
            table(("", *sizes), [(what, *values) for what, values in totals]),
            table(("package", *sizes), lines),
        )
    )


def longest(files: Mapping[str, int]) -> list[str]:
    """Name the longest files with their lines, the longest first."""
    found = sorted(files, key=lambda file: -files[file])[:LONGEST]
    return [f"{file} {files[file]}" for file in found]


if __name__ == "__main__":
    main()
