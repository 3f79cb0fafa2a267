"""Run the programs of this folder, each in a process of its own on each backend that it concerns.

    python tests/cases/run.py [--backends torch tf2 jax numpy strict] [NAME...]

A line for each program and `n of n` for each backend; exit status 1 if any fails. A program is a script
`python tests/cases/NAME.py BACKEND` that exits with 0 if the answer is right or the right error came. It concerns
torch, tf2 and jax unless its `BACKENDS` name others.
"""

import argparse
import ast
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
FRAMEWORKS = ("torch", "tf2", "jax")
BACKENDS = (*FRAMEWORKS, "numpy", "strict")
LIMIT_S = 300
"""None takes nearly as long on two busy cores: what does waits for something."""
QUIET = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
QUIET |= {"TF_CPP_MIN_LOG_LEVEL": "3"}


def backends_of(program: Path) -> tuple[str, ...]:
    """Those that the program names, or all frameworks."""
    for node in ast.parse(program.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "BACKENDS":
            return tuple(ast.literal_eval(node.value))
    return FRAMEWORKS


def run(program: Path, backend: str) -> str | None:
    """None, or what was wrong."""
    command = [sys.executable, str(program), backend]
    try:
        done = subprocess.run(
            command, env=QUIET | os.environ, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"still running after {LIMIT_S} s"
    if not done.returncode:
        return None
    said = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or ["nothing was said"]
    return said[-1] if done.returncode == 1 else f"exit status {done.returncode}: {said[-1]}"


def main() -> int:
    """The exit status."""
    programs = {each.stem: each for each in sorted(HERE.glob("*.py")) if each.stem not in ("case", "run")}
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; all of them if none is named")
    parser.add_argument("--backends", nargs="+", default=BACKENDS, help=f"of {', '.join(BACKENDS)}")
    asked = parser.parse_args()
    # `--backends torch NAME` gives the name to the option, which takes several.
    names = [*asked.names, *(each for each in asked.backends if each not in BACKENDS)]
    if unknown := [name for name in names if name not in programs]:
        parser.error(f"no program {', '.join(unknown)}; there are {', '.join(programs)}")
    chosen = {name: program for name, program in programs.items() if name in (names or programs)}
    passed: dict[str, list[bool]] = {each: [] for each in BACKENDS if each in asked.backends}
    for name, program in chosen.items():
        for backend in backends_of(program):
            if backend in passed:
                start = time.monotonic()
                found = run(program, backend)
                passed[backend].append(found is None)
                took = f"{time.monotonic() - start:.0f} s"
                print(f"{backend:6} {name}: {found or 'right'} ({took})", flush=True)
    for backend, each in passed.items():
        if each:
            print(f"{backend}: {sum(each)} of {len(each)}")
    return not all(all(each) for each in passed.values())


if __name__ == "__main__":
    sys.exit(main())
