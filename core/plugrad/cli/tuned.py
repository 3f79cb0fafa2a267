"""Tuned settings of algorithms: what their authors ran on an environment, in a file that comes with the algorithm.

The file of the algorithm NAME is `tuned/NAME.toml` in the folder of its config class. It has a table per environment,
which holds the tables of a `config.toml`, and may say how long to train:

    ["CartPole-v1"]
    stop_timesteps = 100_000

    ["CartPole-v1".training]
    lr = 1e-3
"""

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.cli.run_files import read_table
from plugrad.errors import ConfigError, did_you_mean

STOP_TIMESTEPS = "stop_timesteps"


@dataclass(frozen=True)
class Tuned:
    """Tuned settings of one algorithm for one environment.

    Attributes:
        file: where they are.
        config: the algorithm's defaults, changed by them.
        settings: as the file has them, by section.
        stop_timesteps: environment steps to train for; None: the file does not say.
    """

    file: Path
    config: AlgorithmConfig
    settings: Mapping[str, Any]
    stop_timesteps: int | None


def all_tuned(algorithm: str, config_class: type[AlgorithmConfig]) -> dict[str, Tuned]:
    """Read all tuned settings of an algorithm.

    Args:
        algorithm: its short name.
        config_class: its config.

    Returns:
        `{environment: settings}`; empty if there is no file.

    Raises:
        ConfigError: the file cannot be read, or a setting is refused; names the file.
    """
    file = _tuned_file(algorithm, config_class)
    if not file.is_file():
        return {}
    return {env: _read(file, env, table, config_class) for env, table in read_table(file).items()}


def tuned_for(algorithm: str, config_class: type[AlgorithmConfig], env: str | None) -> Tuned:
    """Read the tuned settings for one environment.

    Args:
        algorithm: the algorithm's short name.
        config_class: its config.
        env: the environment as it was typed; None: none was.

    Returns:
        The settings.

    Raises:
        ConfigError: there are none for it, with the environments that there are, or the file is wrong.
    """
    found = all_tuned(algorithm, config_class)
    if env in found:
        return found[env]
    if not found:
        raise ConfigError(f"--tuned: {algorithm} comes without tuned settings")
    asked = "no environment is given" if env is None else f"there are none for {env!r}"
    known = f"{algorithm} has settings for {', '.join(found)}"
    raise ConfigError(f"--tuned: {asked}; {known}.{did_you_mean(env or '', found)}")


def _tuned_file(algorithm: str, config_class: type[AlgorithmConfig]) -> Path:
    """The file of an algorithm's tuned settings, which need not exist."""
    module = inspect.getfile(sys.modules[config_class.__module__])
    return Path(module).parent / "tuned" / f"{algorithm}.toml"


def _read(file: Path, env: str, table: Any, config_class: type[AlgorithmConfig]) -> Tuned:
    where = f"{file}, {env!r}"
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: expected a table of sections, found {table!r:.100}")
    settings = {name: value for name, value in table.items() if name != STOP_TIMESTEPS}
    stop = table.get(STOP_TIMESTEPS)
    if stop is not None and (not isinstance(stop, int) or stop < 1):
        raise ConfigError(
            f"{where}: {STOP_TIMESTEPS} must be a whole number of 1 or more, found {stop!r:.100}"
        )
    try:
        config = config_class.from_toml(tomli_w.dumps(settings))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}", **error.facts) from error
    return Tuned(file, config, settings, stop)
