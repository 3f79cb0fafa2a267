"""Which algorithm's settings a command line speaks of, found before its options are read.

The options of `plugrad train` are those of the algorithm's config, so its name must be known first: the first
argument that is no option, else what the file of `--config` or `--resume` says, else the algorithm that a file of
`--plugin` holds, else "ppo".
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from plugrad.cli.settings_files import read_table
from plugrad.errors import AlgorithmNotFoundError, ConfigError
from plugrad.hooks.manager import Plugin
from plugrad.hooks.registry import use_plugin
from plugrad.importing.names import is_unpackaged

DEFAULT_ALGORITHM = "ppo"


class Choice(NamedTuple):
    """What a command line chose.

    Args:
        algorithm: its short name.
        providers: what `--plugin` or the algorithm's argument said, of algorithms and backends that are in no
            distribution: they are known to this process by their short names, and to no other.
        run: of `--resume`.
    """

    algorithm: str
    providers: frozenset[str]
    run: Path | None


def choose(arguments: Sequence[str], flags: frozenset[str]) -> Choice:
    """Load the plugins that are named by a file or a module, and find the algorithm.

    Args:
        arguments: the command line after `plugrad train`.
        flags: the options that take no value.

    Raises:
        PluginError: one of the plugins cannot be used.
    """
    pairs = list(_pairs(arguments, flags))
    options = dict(pairs)
    run = Path(options["--resume"]) if options.get("--resume") else None
    positional = next((value for name, value in pairs if name is None), None)
    texts = [value for name, value in pairs if name == "--plugin"]
    used = {text: use_plugin(text) for text in (positional, *texts) if text and is_unpackaged(text)}
    providers = {text: plugin for text, plugin in used.items() if plugin.tier != "listener"}
    if positional in used:
        positional = _algorithm(used[positional])
    algorithm = (
        positional or _named_in_file(options, run) or _held_by(providers.values()) or DEFAULT_ALGORITHM
    )
    return Choice(algorithm, frozenset(providers), run)


def _algorithm(plugin: Plugin) -> str:
    if plugin.tier != "algorithm":
        raise AlgorithmNotFoundError(f"{plugin} is no algorithm: it lacks the hook 'get_config_class'")
    return plugin.name


def _held_by(plugins: Iterable[Plugin]) -> str | None:
    return next((each.name for each in plugins if each.tier == "algorithm"), None)


def _named_in_file(options: Mapping[str | None, str], run: Path | None) -> str | None:
    if run is not None:
        return _named_in(run / "config.toml")
    return _named_in(Path(options["--config"])) if options.get("--config") else None


def _named_in(path: Path) -> str | None:
    # A file that cannot be read is reported by who really needs it.
    try:
        name = read_table(path).get("algorithm")
    except ConfigError:
        return None
    return name if isinstance(name, str) and name != "none" else None


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
