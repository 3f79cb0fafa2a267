"""The figures of results.json that pages quote. `python benchmarks/quotes.py` writes them into the pages.

A quote is a piece of a page with fields `{section: figure: format}`. The format is Python's. A test compares the pages
with results.json, and fails for numbers in the README that no quote covers.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import record

ROOT = Path(__file__).parents[1]
HOLE = re.compile(r"\{([^{}:]+): ([^{}]+): ([^{}: ]+)\}")
NUMBER = r"[-\d.,]+"

QUOTES = {
    "README.md": [
        "takes about {first train: torch fastest s: .0f} to {first train: torch slowest s: .0f} seconds",
        "One PPO update of {update small: steps: d} minibatches of {update small: rows of a minibatch: d} rows, "
        "two networks of 2x64, and all of CartPole-v1 to a mean return of {cartpole: goal: .0f}",
        "| plugrad, tf2 (one XLA program) | {update small: plugrad-tf2-auto ms: .1f} | "
        "{cartpole: plugrad tf2, rl-zoo settings s: .1f} |",
        "| plugrad, jax (one XLA program) | {update small: plugrad-jax-auto ms: .1f} | "
        "{cartpole: plugrad jax, rl-zoo settings s: .1f} |",
        "| plugrad, torch compiled | {update small: plugrad-torch-complete ms: .1f} | |",
        "| plugrad, torch (the default: recorded steps) | {update small: plugrad-torch-recorded ms: .1f} | "
        "{cartpole: plugrad torch, rl-zoo settings s: .1f} |",
        "| plugrad, torch eager | {update small: plugrad-torch-none ms: .1f} | |",
        "| stable-baselines3, torch | {update small: sb3 ms: .1f} | "
        "{cartpole: stable-baselines3, rl-zoo settings s: .1f} |",
        "| RLlib's Learner, torch | {update small: rllib ms: .1f} | |",
        "yes, tried {crash_save: kills: ,d} times",
    ],
    "docs/performance.md": [
        "update of {update small: steps: d} steps takes some {update small: plugrad-tf2-auto ms: .0f} ms on tf2, "
        '{update small: plugrad-torch-complete ms: .0f} ms with torch\'s `"complete_update"`, '
        "{update small: plugrad-torch-recorded ms: .0f} ms with recorded steps and "
        "{update small: plugrad-torch-none ms: .0f} ms with torch eager, beside {update small: sb3 ms: .0f} ms in "
        "stable-baselines3 and {update small: rllib ms: .0f} ms in RLlib.",
        'torch\'s `"complete_update"` about {first update: plugrad-torch-complete cold s: .0f} s '
        "({first update: plugrad-torch-complete warm s: .0f} s with a warm cache of inductor), "
        "tf2 about {first update: plugrad-tf2-auto cold s: .0f} s.",
    ],
}
"""`{page: [quotes]}`. Where a quote says a blank, a page may say a line break."""


def rendered(quote: str, results: dict[str, record.Section]) -> str:
    """Fill the fields of a quote with figures.

    Raises:
        KeyError: the section or figure does not exist.
    """
    return HOLE.sub(lambda hole: _figure(results, *hole.groups()), quote)


def places(quote: str, page: str) -> list[re.Match[str]]:
    """Find a quote in a page, with any numbers."""
    return list(re.finditer(_pattern(quote), page))


def numbers_in(found: str, quote: str) -> list[str]:
    """Return the numbers in the fields of a quote."""
    match = re.fullmatch(_pattern(quote), found)
    return list(match.groups()) if match else []


def rewritten(page: str, quotes: list[str], results: dict[str, record.Section]) -> str:
    """Return the page with the figures of the results in its quotes."""
    for quote in quotes:
        wanted = iter(numbers_in(rendered(quote, results), quote))
        page = re.sub(_pattern(quote), lambda found: "".join(_refilled(found, wanted)), page)  # noqa: B023
    return page


def _figure(results: dict[str, record.Section], section: str, name: str, form: str) -> str:
    value: Any = results[section]["figures"][name]
    return format(value, form)


def _pattern(quote: str) -> str:
    parts = HOLE.split(quote)[::4]
    return f"({NUMBER})".join(re.escape(part).replace(r"\ ", r"\s+") for part in parts)


def _refilled(found: re.Match[str], wanted: Iterator[str]) -> Iterator[str]:
    end = found.start()
    for n in range(1, 1 + len(found.groups())):
        yield found.string[end : found.start(n)]
        yield next(wanted)
        end = found.end(n)
    yield found.string[end : found.end()]


def main() -> None:
    results = record.read()
    for name, quotes in QUOTES.items():
        page = ROOT / name
        page.write_text(rewritten(page.read_text(), quotes, results))


if __name__ == "__main__":
    main()
