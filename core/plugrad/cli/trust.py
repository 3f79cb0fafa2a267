"""What a command may call: what its files name and is safe to call, and what the user typed.

Environments, classes, functions and listeners that a run's `config.toml` or a `--config` file names may be a stranger's
choice. See `plugrad.importing.trusted_names` for what is called on a file's word alone.
"""

import shlex
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from plugrad.cli.exits import typed_command
from plugrad.cli.typed_names import look_in_current_folder
from plugrad.config.named_code import NamedCode, untrusted
from plugrad.errors import ConfigError


@dataclass(frozen=True)
class Trust:
    """What the user vouches for on the command line.

    Args:
        env: the environment that was typed, or None.
        everything: `--trust`: whatever the files name may be called.
        settings: names of other settings that were typed.
        listeners: files of listeners that were typed.
    """

    env: str | None = None
    everything: bool = False
    settings: Collection[str] = ()
    listeners: Collection[str] = ()

    def check(self, config: Any, file: Path) -> None:
        """Refuse a config with names of code that nobody vouches for. Calls none of them.

        Args:
            config: as the file has it; settings that were typed go before it.
            file: where the config comes from, for the error.

        Raises:
            ConfigError: says what is named, why that is not enough, and the command that allows it.
        """
        if self.everything:
            return
        for code, reason in untrusted(config):
            if not self._is_typed(code):
                raise ConfigError(
                    f"{file}: {code.setting} names {code.name!r}, and a file's word is not enough to call that: "
                    f"{reason}. If you know it, type: {_command(code)}",
                    setting=code.setting,
                    name=code.name,
                )

    def _is_typed(self, code: NamedCode) -> bool:
        typed = code.setting == "env" and self.env is not None
        return typed or code.setting in self.settings or code.name in self.listeners


def _command(code: NamedCode) -> str:
    word = ["--env", code.name] if code.setting == "env" else ["--trust"]
    if code.setting == "plugin_names" and code.kinds == ():
        word = ["--plugin", code.name]
    return shlex.join([*typed_command(), *word])


def env_option(command: Any) -> Any:
    """`--env`, whose module is looked up in the current folder too."""
    return click.option(
        "--env",
        metavar="NAME",
        callback=lambda ctx, param, text: None if text is None else look_in_current_folder(text),
        help="The environment, where the run names a function or what is not installed; default: the run's.",
    )(command)


def trust_option(command: Any) -> Any:
    """`--trust`."""
    return click.option(
        "--trust", is_flag=True, help="Call whatever the run's files name. Not for a stranger's run."
    )(command)


def trust_options(command: Callable[..., Any]) -> Any:
    """`--env` and `--trust` of the commands that open a run."""
    return env_option(trust_option(command))
