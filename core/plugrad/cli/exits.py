"""Exit codes, and errors as one line.

0 done, 1 failed, 2 usage (an unknown backend, algorithm, environment or setting, a run that another process trains),
130, 143 and 129 on signals, 141 where nobody reads the output any more.
"""

import os
import re
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from signal import SIGINT, SIGPIPE
from typing import Any

import click

from plugrad.deprecation import hint_for
from plugrad.errors import (
    AlgorithmNotFoundError,
    BackendNotFoundError,
    CheckpointLockedError,
    ConfigError,
    MissingFrameworkError,
    PlugradError,
)

FAILED, USAGE, CLOSED_PIPE = 1, 2, 128 + SIGPIPE
_DEBUG, _TYPED = "plugrad.debug", "plugrad.typed"


class OneLineErrors(click.Group):
    """A command group that prints errors as one line on stderr; with `--debug` as tracebacks too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what was typed, for errors that say what to type instead. See `click.Command.parse_args`."""
        ctx.meta[_TYPED] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was called."""
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:  # outside of training, which has `StopSignals`
            ctx.exit(128 + SIGINT)
        except click.ClickException as error:
            self._end(ctx, _usage_line(error), error.exit_code)
        except BrokenPipeError:
            _mute_stdout()
            ctx.exit(CLOSED_PIPE)
        except Exception as error:
            self._end(ctx, _line(ctx, error), exit_code(error))
        except BaseException as error:  # also sys.exit() in a user's code: it must not pass for success
            if _is_broken_pipe_of_rich(error):
                ctx.exit(CLOSED_PIPE)
            self._end(ctx, _exit_line(error), FAILED)

    def _end(self, ctx: click.Context, line: str, code: int) -> None:
        if ctx.meta.get(_DEBUG):
            traceback.print_exc()
        click.echo(f"plugrad: error: {line}", err=True)
        ctx.exit(code)


def typed_command() -> list[str]:
    """The words of the command line; outside of a command "plugrad" and "..."."""
    context = click.get_current_context(silent=True)
    return ["plugrad", *(context.meta.get(_TYPED, ()) if context is not None else ["..."])]


def _mute_stdout() -> None:
    """Discard what is still to be printed: nobody reads it, and the interpreter would complain at its end."""
    with suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)


def _is_broken_pipe_of_rich(error: BaseException) -> bool:
    """Whether rich raised it: where nobody reads what it prints, it raises SystemExit."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return isinstance(error, SystemExit) and frames[-1].f_globals.get("__name__") == "rich.console"


def _exit_line(error: BaseException) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    where = f"{place.filename}, line {place.lineno}"
    did = f"was raised in {where}: nothing more was done (--debug shows how)"
    return f"{type(error).__name__}({text}) {did}{_notes(error)}"


def exit_code(error: Exception) -> int:
    """The exit code of an error: 2 if the user named something unknown or impossible, else 1."""
    if isinstance(error, MissingFrameworkError):
        return FAILED
    usage = (ConfigError, BackendNotFoundError, AlgorithmNotFoundError, CheckpointLockedError)
    return USAGE if isinstance(error, usage) else FAILED


def debug_option(command: Any) -> Any:
    """Add `--debug`; it works before and after a command's name."""

    def remember(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value and _DEBUG not in ctx.meta:
            ctx.meta[_DEBUG] = True
            from plugrad.hooks.author_line import (
                WHOLE_TRACEBACKS,
            )  # late: it loads numpy, which help does not need

            before = os.environ.get(WHOLE_TRACEBACKS, "")
            os.environ[WHOLE_TRACEBACKS] = "1"  # also in workers
            ctx.call_on_close(lambda: os.environ.update({WHOLE_TRACEBACKS: before}))

    return click.option(
        "--debug", is_flag=True, is_eager=True, expose_value=False, callback=remember, help="Show tracebacks."
    )(command)


def _usage_line(error: click.ClickException) -> str:
    line = " ".join(error.format_message().split()).rstrip(".")
    if isinstance(error, click.NoSuchOption):
        hint = hint_for(error.option_name.rpartition(".")[2].lstrip("-"))
        hint = hint or _setting_hint(error)
        line = f"No such option {error.option_name!r}.{hint}".rstrip(".") if hint else line
    context = getattr(error, "ctx", None)
    if context is None:
        return line
    end = "" if line.endswith("?") else "."
    return f"{line}{end} Try: {context.command_path} --help"


def _setting_hint(error: click.NoSuchOption) -> str:
    """The setting that was typed without its section, `--lr` for `--training.lr`."""
    params = error.ctx.command.get_params(error.ctx) if error.ctx else ()
    names = (name for param in params for name in param.opts)
    found = [name for name in names if name.endswith(f".{error.option_name.lstrip('-')}")]
    return f" Did you mean {found[0]!r}?" if found else ""


def _notes(error: BaseException) -> str:
    return "".join(f"; {note}" for note in getattr(error, "__notes__", ()) if "\n" not in note)


def _line(ctx: click.Context, error: Exception) -> str:
    text = " ".join(str(error).split())
    notes = _notes(error)
    if isinstance(error, PlugradError):
        return f"{text}{_file_hint(text, error)}{notes}"
    where = "" if ctx.meta.get(_DEBUG) else " (--debug shows where)"
    return f"{type(error).__name__}: {text}{_own_line(error)}{notes}{where}"


def _own_line(error: Exception) -> str:
    """The innermost line of the user's own code, such as " (arm.py, line 33)"; empty if no such code took part."""
    from plugrad.hooks.plugin_records import GROUPS, entries  # late: --help needs none of it

    found = [each for kind in GROUPS for each in entries(kind)]
    ours = {re.split("[.:]", entry.value)[0] for entry, owner in found if owner.name == "plugrad"}
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        file = Path(frame.f_code.co_filename)
        is_library = package in {"plugrad", *ours, *sys.stdlib_module_names} or "site-packages" in file.parts
        if not is_library and file.is_absolute():
            here = Path.cwd()
            return f" ({file.relative_to(here) if file.is_relative_to(here) else file}, line {line})"
    return ""


def _file_hint(text: str, error: PlugradError) -> str:
    """A hint for an environment in the algorithm's place, or for a run whose algorithm is in a file."""
    name = text.partition("'")[2].partition("'")[0]
    if isinstance(error, AlgorithmNotFoundError) and _is_environment(name):
        return f" An environment comes second: plugrad train ppo {name}"
    unknown = isinstance(error, AlgorithmNotFoundError | BackendNotFoundError)
    is_missing = unknown and not isinstance(error, MissingFrameworkError)
    return " If it is in a file: --plugin FILE.py" if is_missing and text.endswith(".") else ""


def _is_environment(name: str) -> bool:
    from gymnasium import registry  # late: --help needs none

    return ":" in name or name in registry
