"""results.json: measured figures, with date, commit, machine and versions. The scripts write it with `--save`.

    {section: {"date", "commit", "machine", "command", "versions": {package: version}, "figures": {name: number}}}

A section has the figures of one run, such as "update small". `quotes.py` says which page quotes which figure.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PACKAGES = ("plugrad", "torch", "tensorflow-cpu", "tensorflow", "numpy", "gymnasium")
PEERS = ("stable-baselines3", "ray", "torch")
DIGITS = 5
WRITTEN_LATER = (":(top)", ":(top,exclude)*.md", ":(top,exclude)benchmarks/results.json")
"""For git: all files but those that are written after a measurement."""

Figures = Mapping[str, float]
Section = dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the option `--save [FILE]` to a script."""
    parser.add_argument(
        "--save",
        type=Path,
        nargs="?",
        const=RESULTS,
        metavar="FILE",
        help="put the figures into this file of results; without a name: benchmarks/results.json",
    )


def read(path: Path = RESULTS) -> dict[str, Section]:
    """Return all sections by name, or none if the file does not exist."""
    sections: dict[str, Section] = json.loads(path.read_text()) if path.exists() else {}
    return sections


def save(path: Path | None, section: str, figures: Figures, peers: str | None = None) -> None:
    """Save one section, and replace an older one of this name.

    Args:
        path: of the file; None: the script was not asked to save, and nothing happens.
        section: name of what was measured.
        figures: `{name: number}`; kept with five digits.
        peers: interpreter of the peers that were measured beside plugrad, if any.
    """
    if path is None:
        return
    found = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit(),
        "machine": machine_kind(),
        "command": " ".join(Path(each).name for each in sys.argv),
        "versions": {"python": platform.python_version(), **installed(), **_of_peers(peers)},
        "figures": {name: _short(value) for name, value in figures.items()},
    }
    path.write_text(json.dumps(dict(sorted((read(path) | {section: found}).items())), indent=1) + "\n")


def commit() -> str:
    """Return the measured commit, with "+" if files other than pages and results have changed since.

    What was unpacked from an sdist has none: "unknown".
    """
    if not (HERE.parent / ".git").exists():
        return "unknown"
    hashed = _git("rev-parse", "--short=7", "HEAD")
    return hashed + ("+" if _git("diff", "--name-only", "HEAD", "--", *WRITTEN_LATER) else "")


def machine_kind() -> str:
    """Return processor, number of cores and operating system."""
    return f"{processor()}, {os.cpu_count()} cores, {platform.system()}"


def processor() -> str:
    """Return the processor's name."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def installed(packages: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _of_peers(python: str | None) -> dict[str, str]:
    if python is None:
        return {}
    script = "import json, record; print(json.dumps(record.installed(record.PEERS)))"
    done = subprocess.run([python, "-c", script], cwd=HERE, stdout=subprocess.PIPE, text=True, check=True)
    return {f"peers: {name}": each for name, each in json.loads(done.stdout).items()}


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(HERE), *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def _short(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.{DIGITS}g}")
