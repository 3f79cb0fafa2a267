"""Which algorithm's settings a command line speaks of, found before its options are read.

The options of `plugrad train` are those of the algorithm's config, so its name must be known first: the first
argument that is no option, else what the file of `--config` or `--resume` says, else "ppo".
"""

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

DEFAULT_ALGORITHM = "ppo"


def chosen_algorithm(arguments: Sequence[str], flags: frozenset[str]) -> str:
    """The algorithm's name.

    Args:
        arguments: the command line after `plugrad train`.
        flags: the options that take no value.
    """
    positional = next((value for name, value in _pairs(arguments, flags) if name is None), None)
    if positional is not None:
        return positional
    if (run := resumed_run(arguments, flags)) is not None:
        return _named_in(run / "config.toml")
    options = dict(_pairs(arguments, flags))
    return _named_in(Path(options["--config"])) if options.get("--config") else DEFAULT_ALGORITHM


def resumed_run(arguments: Sequence[str], flags: frozenset[str]) -> Path | None:
    """The run of `--resume`; arguments as in `chosen_algorithm`."""
    run = dict(_pairs(arguments, flags)).get("--resume")
    return Path(run) if run else None


def _named_in(path: Path) -> str:
    # A file that cannot be read is reported by who really needs it.
    try:
        name = tomllib.loads(path.read_text(encoding="utf-8")).get("algorithm")
    except (OSError, ValueError):
        return DEFAULT_ALGORITHM
    return name if isinstance(name, str) and name != "none" else DEFAULT_ALGORITHM


def _pairs(arguments: Sequence[str], flags: frozenset[str]) -> Iterator[tuple[str | None, str]]:
    """`(option, value)` for options, `(None, value)` for the others."""
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if argument == "--":
            yield from ((None, each) for each in rest)
        elif not argument.startswith("-") or argument == "-":
            yield None, argument
        elif equals or name in flags:
            yield name, value
        else:
            yield name, next(rest, "")
