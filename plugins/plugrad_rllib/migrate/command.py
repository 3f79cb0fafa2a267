"""`plugrad migrate`: RLlib programs, rewritten."""

from collections.abc import Callable, Iterator, Sequence
from difflib import unified_diff
from pathlib import Path

import click

from plugrad.checkpoint.disk import disk_errors, replace_file
from plugrad.cli.exits import debug_option
from plugrad.errors import PlugradError
from plugrad.importing.on_use import require_extra
from plugrad_rllib.migrate.files import read_program_text, regular_files
from plugrad_rllib.migrate.notes import Note
from plugrad_rllib.migrate.weights import convert, is_checkpoint


@click.command(name="migrate", short_help="Rewrite programs for RLlib; prints the difference.")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--write", is_flag=True, help="Change the files; without it nothing is changed.")
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the new files there instead.",
)
@click.option(
    "--trust-pickle", is_flag=True, help="Read weights of an RLlib checkpoint that is yours: it is pickled."
)
@debug_option
def migrate(paths: tuple[Path, ...], write: bool, out: Path | None, trust_pickle: bool) -> None:
    """Rewrite programs for RLlib's new API stack: configs, learners, modules, environments.

    PATHS are files and folders. The difference is printed, and on stderr every line that needs a look, with the page
    that explains it. See docs/from-rllib.md.

    A folder may be a checkpoint of RLlib: with --trust-pickle and --out DIR its weights are written there.

    The last line on stderr counts the lines that were named.
    """
    checkpoints = [path for path in paths if is_checkpoint(path)]
    if checkpoints:
        if out is None or len(paths) != 1:
            raise click.UsageError(f"{checkpoints[0]} is a checkpoint: give it alone, and --out DIR")
        modules = convert(paths[0], out, trusted=trust_pickle)
        click.echo(f"{out}: weights of {', '.join(modules)}")
        return
    require_extra("libcst", "migrate", "plugrad migrate")
    from plugrad_rllib.migrate.rewrite import migrate as rewrite

    if write and out is not None:
        raise click.UsageError("--write changes the files themselves: leave out --out")
    named = set()
    files = list(_files(paths))
    if out is not None:
        _refuse_one_place_for_two(files, out)
    for path, place in files:
        try:
            source, encoding = read_program_text(path)
            text, notes = _rewritten(path, source, rewrite)
        except PlugradError as error:
            if path in paths:
                raise
            click.echo(f"{error}: it is left as it is", err=True)  # others of the folder may be programs
            continue
        click.echo("".join(_difference(path, source, text)), nl=False)
        for note in notes:
            click.echo(f"{path}:{note.line}: {note.text} ({note.page})", err=True)
            named.add((path, note.line))
        if out is not None:
            with disk_errors("write", out / place):
                _keep_what_was_mended(out / place, text.encode(encoding))
                replace_file(out / place, text.encode(encoding), within=out)
        elif write and text != source:
            with disk_errors("write", path):
                replace_file(path, text.encode(encoding), mode=path.stat().st_mode & 0o777)
    if named:
        lines = "1 line needs" if len(named) == 1 else f"{len(named)} lines need"
        click.echo(f"{lines} a look: see above", err=True)


def _files(paths: tuple[Path, ...]) -> Iterator[tuple[Path, Path]]:
    """Each Python file, and where it lies below the path that was given."""
    for path in paths:
        if path.is_dir():
            found = regular_files(path, ".py", _tell_what_is_left)
            yield from ((each, each.relative_to(path)) for each in found)
        else:
            yield path, Path(path.name)


def _refuse_one_place_for_two(files: Sequence[tuple[Path, Path]], out: Path) -> None:
    first: dict[Path, Path] = {}
    for path, place in files:
        other = first.setdefault(place, path)
        if not other.samefile(path):
            raise click.UsageError(
                f"{other} and {path} would both be {out / place}: give the folder that both are in, or one of them"
            )


def _keep_what_was_mended(target: Path, new: bytes) -> None:
    """Refuse to write over a program that differs: the lines that need a look are mended by hand."""
    if target.is_file() and not target.is_symlink() and target.read_bytes() != new:
        raise PlugradError(
            f"{target} is there already and differs: it stays as it is. Remove it, or choose another --out"
        )


def _tell_what_is_left(path: Path, why: str) -> None:
    click.echo(f"{path} {why}: it is left as it is", err=True)


def _rewritten(
    path: Path, source: str, rewrite: Callable[[str], tuple[str, list[Note]]]
) -> tuple[str, list[Note]]:
    try:
        return rewrite(source)
    except SyntaxError as error:
        raise PlugradError(f"{path}, line {error.lineno}: this is no Python: {error.msg}") from error
    except ValueError as error:  # a null byte
        raise PlugradError(f"{path}: this is no Python: {error}") from error


def _difference(path: Path, old: str, new: str) -> Iterator[str]:
    lines = unified_diff(old.splitlines(True), new.splitlines(True), str(path), f"{path} (plugrad)")
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
