"""Two learners whose rows have the modules in opposite orders, or lack one: ray#63819 on the CPU, with gloo.

    python benchmarks/deadlock.py --peers peers/bin/python

RLlib wraps each module in a DistributedDataParallel of its own, so each module's gradients are an exchange of their
own, in the order of the rows' modules. Where learners have other orders, a gradient is added to that of another module:
an error if their sizes differ, and silence if they do not. Where one lacks a module, the other waits for it.

plugrad's learners agree on the rows of all first. Exits with 1 if they are not equal to one learner with all rows.
"""

import argparse
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import record
from alone import run_alone
from deadlock_rows import CASES
from report import machine, table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=Path, help="python with ray[rllib]")
    parser.add_argument("--limit-s", type=float, default=60.0, help="after which RLlib is ended")
    record.add_options(parser)
    given = parser.parse_args()
    figures: dict[str, float] = {"limit s": given.limit_s}
    lines, worst = [], 0.0
    for case in CASES:
        off, seconds = ours(case)
        worst = max(worst, off)
        figures |= {f"{case}, plugrad s": seconds, f"{case}, plugrad off one learner": off}
        line = [case, f"done in {seconds:.1f} s, {off:.0e} off one learner"]
        if given.peers:
            found = run_alone(
                "peers_rllib_deadlock.py", case, given.limit_s, core=None, python=str(given.peers)
            )
            line.append(said(found))
            figures |= {f"{case}, RLlib {name}": value for name, value in found.items() if name != "error"}
        lines.append(line)
    print(machine())
    print(table(["three updates of two learners", "plugrad", *(["RLlib"] if given.peers else [])], lines))
    record.save(given.save, "deadlock", figures)
    sys.exit(worst > 1e-6)


def ours(case: str) -> tuple[float, float]:
    """How far both learners are from one with all rows, and the seconds of their updates."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with ThreadPoolExecutor() as pool:
        found = [
            *pool.map(lambda rank: run_alone("deadlock_plugrad.py", case, rank, port, core=None), range(2))
        ]
    assert found[0]["weights"] == found[1]["weights"]
    return max(each["off"] for each in found), max(each["seconds"] for each in found)


def said(found: dict[str, Any]) -> str:
    if "hangs" in found:
        return f"hangs: nothing after {found['hangs']:.0f} s"
    if "error" in found:
        return f"fails after {found['seconds']:.1f} s: {found['error'].rsplit('] ', 1)[-1][:80]}"
    what = "learners are equal" if found["differ"] == 0.0 else f"learners differ by {found['differ']:.0e}"
    return f"done in {found['seconds']:.1f} s, {what}"


if __name__ == "__main__":
    main()
