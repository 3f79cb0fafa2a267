"""Exit codes, and errors as one clear line.

0 done, 1 failed, 2 usage (an unknown backend, algorithm, environment or setting, a run that another process trains),
130 and 143 on signals.
"""

import traceback
from signal import SIGINT
from typing import Any

import click

from plugrad.errors import (
    AlgorithmNotFoundError,
    BackendNotFoundError,
    CheckpointLockedError,
    ConfigError,
    MissingFrameworkError,
    PlugradError,
)

FAILED, USAGE = 1, 2
_DEBUG, _TYPED = "plugrad.debug", "plugrad.typed"


class OneLineErrors(click.Group):
    """A command group whose errors are one line on stderr; `--debug` shows where they come from."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remember what was typed, for errors that say what to type instead."""
        ctx.meta[_TYPED] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was called."""
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:  # outside of training, where `signals` answers
            ctx.exit(128 + SIGINT)
        except click.ClickException as error:
            self._end(ctx, _usage_line(error), error.exit_code)
        except Exception as error:
            self._end(ctx, _line(ctx, error), exit_code(error))

    def _end(self, ctx: click.Context, line: str, code: int) -> None:
        if ctx.meta.get(_DEBUG):
            traceback.print_exc()
        click.echo(f"plugrad: error: {line}", err=True)
        ctx.exit(code)


def typed_command() -> list[str]:
    """The words of the command line; outside of a command `plugrad` and dots."""
    context = click.get_current_context(silent=True)
    return ["plugrad", *(context.meta.get(_TYPED, ()) if context is not None else ["..."])]


def exit_code(error: Exception) -> int:
    """2 if the user named something that is not there or cannot be, else 1."""
    if isinstance(error, MissingFrameworkError):
        return FAILED
    usage = (ConfigError, BackendNotFoundError, AlgorithmNotFoundError, CheckpointLockedError)
    return USAGE if isinstance(error, usage) else FAILED


def debug_option(command: Any) -> Any:
    """`--debug`, wherever it is typed."""

    def remember(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value:
            ctx.meta[_DEBUG] = True

    return click.option(
        "--debug", is_flag=True, is_eager=True, expose_value=False, callback=remember, help="Show tracebacks."
    )(command)


def _usage_line(error: click.ClickException) -> str:
    line = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    return line if context is None else f"{line.rstrip('.')}. Try: {context.command_path} --help"


def _line(ctx: click.Context, error: Exception) -> str:
    text = " ".join(str(error).split())
    notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()) if "\n" not in note)
    if isinstance(error, PlugradError):
        return f"{text}{_file_hint(text, error)}{notes}"
    where = "" if ctx.meta.get(_DEBUG) else " (--debug shows where)"
    return f"{type(error).__name__}: {text}{notes}{where}"


def _file_hint(text: str, error: PlugradError) -> str:
    """A run of an algorithm in a file knows its short name only; a better hint of the error's own goes before."""
    unknown = isinstance(error, AlgorithmNotFoundError | BackendNotFoundError)
    is_missing = unknown and not isinstance(error, MissingFrameworkError)
    return " If it is in a file: --plugin FILE.py" if is_missing and text.endswith(".") else ""
