"""What it costs a replay buffer to keep frames once: time to add large observations and to draw them.

`python benchmarks/replay_rows.py [--capacity 6000] [--repeats 7]`

The twin writes the rows of each column into one array and draws with `numpy.take`, as plugrad did before equal frames
were shared. Both take turns in one process; the ratio is that of the medians. Rows are those of an Atari game: four
stacked frames of 84x84 bytes, of which each step brings one.
"""

import argparse
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box
from report import machine, table

from plugrad.episodes import SingleAgentEpisode
from plugrad.replay import NStepTransitions, ReplayBuffer
from plugrad.replay.observation_rows import stored_parts

Rows = Mapping[str, Any]
STACK, SIDE, EPISODE = 4, 84, 500


class Case(NamedTuple):
    """How rows come: `steps` of each of `envs` environments at once, as transitions of `n_step`."""

    envs: int
    steps: int
    n_step: int = 1


CASES = (Case(1, 1), Case(1, 4), Case(1, 64), Case(8, 1), Case(8, 16), Case(1, 1, 3), Case(8, 4, 3))


class WholeColumns:
    """The twin: each column is one array."""

    def __init__(self, capacity: int, rng: np.random.Generator) -> None:
        self.capacity, self.added, self.rng = capacity, 0, rng
        self.columns: dict[str, Any] = {}

    def add(self, rows: Rows) -> None:
        """Write rows over the oldest."""
        number = len(rows["obs"])
        places = np.arange(self.added, self.added + number) % self.capacity
        if not self.columns:
            self.columns = {
                name: np.zeros((self.capacity, *each.shape[1:]), each.dtype) for name, each in rows.items()
            }
        for name, values in rows.items():
            self.columns[name][places] = values
        self.added += number

    def sample(self, number: int) -> tuple[Rows, Any]:
        """Draw rows."""
        places = self.rng.integers(min(self.added, self.capacity), size=number)
        return {name: each.take(places, axis=0) for name, each in self.columns.items()}, places


def samples(case: Case, rows: int) -> list[Rows]:
    """The rows of one `sample()` after the other; a few pixels change from frame to frame, as in a game."""
    rng = np.random.default_rng(0)
    make = NStepTransitions(case.n_step, 0.99)
    background = rng.integers(0, 255, (SIDE, SIDE), np.uint8)
    seen = [np.zeros((STACK, SIDE, SIDE), np.uint8) for _ in range(case.envs)]
    found: list[Rows] = []
    for k in range(-(-rows // (case.envs * case.steps))):
        chunks = []
        for env in range(case.envs):
            observations = [seen[env]]
            for _ in range(case.steps):
                frame = background.copy()
                x, y = rng.integers(SIDE - 8, size=2)
                frame[x : x + 8, y : y + 8] = rng.integers(0, 255, (8, 8), np.uint8)
                observations.append(np.concatenate([observations[-1][1:], frame[None]]))
            seen[env] = observations[-1]
            chunks.append(
                SingleAgentEpisode(
                    observations=np.stack(observations),
                    actions=np.zeros(case.steps, np.int64),
                    rewards=np.zeros(case.steps),
                    id_=str(env),
                    t_started=k * case.steps,
                )
            )
        found.append(dict(make(chunks)))
    return [each for each in found if len(each["obs"])]


def seconds(function: Callable[..., Any], *args: Any) -> float:
    """Of one call."""
    start = perf_counter()
    function(*args)
    return perf_counter() - start


def adding(case: Case, capacity: int, repeats: int) -> tuple[float, float]:
    """Microseconds per row, of plugrad and of the twin, while the buffers fill and when they are full."""
    given = samples(case, capacity // 2)
    number = sum(len(each["obs"]) for each in given)
    ours, twins = [], []
    for _ in range(repeats):
        times = [0.0, 0.0]
        buffers: tuple[Any, ...] = _buffers(capacity // 3)
        for rows in given:
            for n, buffer in enumerate(buffers):  # each with rows that were just made, as a run has them
                times[n] += seconds(buffer.add, {name: each.copy() for name, each in rows.items()})
        ours.append(times[0])
        twins.append(times[1])
    return median(ours) / number * 1e6, median(twins) / number * 1e6


def drawing(batch: int, capacity: int, repeats: int) -> tuple[float, float]:
    """Milliseconds per draw, of plugrad and of the twin."""
    buffer, twin = _buffers(capacity)
    for rows in samples(Case(8, 16), capacity):
        buffer.add(rows)
        twin.add(rows)
    times = [(seconds(buffer.sample, batch), seconds(twin.sample, batch)) for _ in range(repeats * 10)]
    return median(each for each, _ in times) * 1e3, median(each for _, each in times) * 1e3


def _buffers(capacity: int) -> tuple[ReplayBuffer, WholeColumns]:
    parts = stored_parts(Box(0, 255, (STACK, SIDE, SIDE), np.uint8))
    return (
        ReplayBuffer(capacity, np.random.default_rng(0), parts=parts),
        WholeColumns(capacity, np.random.default_rng(0)),
    )


def _line(name: str, ours: float, twin: float) -> list[str]:
    return [name, f"{ours:.2f}", f"{twin:.2f}", f"{ours / twin:.2f}"]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--capacity", type=int, default=6000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    print(machine(), "\n")
    lines = [
        _line(
            f"{case.envs} environments, {case.steps} steps each, n_step={case.n_step}",
            *adding(case, options.capacity, options.repeats),
        )
        for case in CASES
    ]
    print(table(["adding a row", "us", "whole columns, us", "ratio"], lines))
    lines = [
        _line(f"{batch} rows", *drawing(batch, options.capacity, options.repeats))
        for batch in (32, 256, 1024)
    ]
    print("\n" + table(["drawing", "ms", "whole columns, ms", "ratio"], lines))


if __name__ == "__main__":
    main()
