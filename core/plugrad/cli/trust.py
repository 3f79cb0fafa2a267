"""Which code a command may call: what the user typed, and what files name that is safe to call.

The same goes for numbers of environments and processes: those that were typed, and those below a limit in files. And
for `offline_data.output`, the one setting that names a folder to write to: a typed one, or one in the run's directory.

A run's `config.toml` or the file of `--config` may come from a stranger, and so may the environments, classes,
functions and listeners that it names. `plugrad.importing.trusted_names` decides what is called on a file's word alone.
Names that were typed are looked up in the current folder, too; names in files never are.
"""

import os
import shlex
import sys
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from plugrad.checkpoint.disk import refuse_links
from plugrad.cli.exits import typed_command
from plugrad.config.from_files import NamedCode, named_code, too_large, untrusted
from plugrad.errors import CheckpointUnsafeError, ConfigError
from plugrad.hooks.registry import algorithm_of, named_by_user
from plugrad.importing.names import is_installed


def look_in_current_folder(text: str) -> str:
    """Make the module of a typed `"module:Name"` importable if it is a file or package in the current folder.

    An installed module of the same name comes first. The folder stays on `sys.path` until the command ends: the module
    may import its neighbours, and remote env runners search the same path.

    Args:
        text: `"myenvs:Simple"` or `"./myenvs.py:Simple"`; anything else, such as a Gymnasium id, is returned as it is.

    Returns:
        The name as a config keeps it: `"myenvs:Simple"`.

    Raises:
        ConfigError: the file is not in the current folder, or no class is named.
    """
    module, colon, name = text.partition(":")
    if module.endswith(".py"):
        return _name_in_file(text, Path(module), name)
    if colon:
        _search_current_folder(module.partition(".")[0])
    elif text.isidentifier() and Path(f"{text}.py").is_file() and not _is_registered(text):
        raise ConfigError(f"{text!r} is the file {text}.py; name the class in it: {text}:NAME")
    return text


def _is_registered(name: str) -> bool:
    from gymnasium import registry  # late: --help needs none

    return name in registry


def look_for_plugin(text: str) -> str:
    """As `look_in_current_folder`, for a plugin: a whole file, such as `"plugins/mine.py"`, stays as it is."""
    return text if text.endswith(".py") else look_in_current_folder(text)


def _name_in_file(text: str, file: Path, name: str) -> str:
    if not file.is_file():
        raise ConfigError(f"{text!r}: there is no file {str(file)!r}")
    if not name:
        raise ConfigError(f"{text!r} is a file; name the class in it: {file.stem}:NAME")
    if file.resolve().parent != Path.cwd():
        raise ConfigError(
            f"{text!r}: the file is not in the current folder; type {file.stem}:{name} in the folder {file.parent}"
        )
    _search_current_folder(file.stem)
    spec = find_spec(file.stem)
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != file.resolve():
        raise ConfigError(
            f"{text!r}: Python finds another module {file.stem!r} first; give the file another name"
        )
    return f"{file.stem}:{name}"


def _search_current_folder(module: str) -> None:
    if not module.isidentifier() or module in sys.modules or find_spec(module) is not None:
        return
    folder = Path.cwd()
    if (folder / f"{module}.py").is_file() or (folder / module).is_dir():
        sys.path.append(str(folder))


@dataclass(frozen=True)
class Trust:
    """The code that the user vouches for on the command line.

    Attributes:
        env: the environment that was typed, or None.
        everything: `--trust` was typed: whatever the files name may be called, and as much as they say.
        settings: names of other settings that were typed.
        listeners: files of listeners that were typed.
    """

    env: str | None = None
    everything: bool = False
    settings: Collection[str] = ()
    listeners: Collection[str] = ()

    def check(self, config: Any, file: Path, *, run: Path | None = None) -> None:
        """Refuse a config that names code or a folder to write to, or asks for too much, which nobody vouches for.

        Args:
            config: as the file has it; settings that were typed replace it later.
            file: where the config comes from, for the error.
            run: the directory of the run that goes on, where training may write; None: there is none yet.

        Raises:
            ConfigError: says what is named, why that is not enough, and the command that allows it.
        """
        if self.everything:
            return
        for name, value, limit in too_large(config.to_dict(), config.fields()):
            if name not in self.settings:
                raise ConfigError(
                    f"{file}: {name}={value!r:.40}: from a file at most {limit} are taken. If you trust it, type: "
                    f"{shlex.join([*typed_command(), '--trust'])}",
                    setting=name,
                )
        output = config.output
        if output is not None and "output" not in self.settings and not _is_inside(Path(output), run):
            raise ConfigError(
                f"{file}: offline_data.output={output!r:.200} is outside of the run's directory, and nothing is "
                "written there because a file names it. If you trust it, type: "
                f"{shlex.join([*typed_command(), '--trust'])}",
                setting="output",
            )
        for code, reason in untrusted(config):
            if not self._is_typed(code):
                raise ConfigError(
                    f"{file}: {code.setting} names {code.name!r}, which is not called because a file names it: "
                    f"{reason}. If you trust it, type: {shlex.join([*typed_command(), *_option(code)])}",
                    setting=code.setting,
                    name=code.name,
                )

    def import_env(self, named: Any) -> None:
        """Import the module of the environment: it may register kinds of spaces that the settings have.

        Args:
            named: the environment that a file names; imported if everything is trusted and none was typed.
        """
        env = self.env if self.env is not None else named if self.everything else None
        module, colon, _ = env.partition(":") if isinstance(env, str) else ("", "", "")
        if colon:
            with suppress(Exception):  # what is wrong is said where the environment is made
                import_module(module)

    def _is_typed(self, code: NamedCode) -> bool:
        typed = code.setting == "env" and self.env is not None
        return typed or code.setting in self.settings or code.name in self.listeners


def _is_inside(path: Path, run: Path | None) -> bool:
    """Whether a path is below a run's directory, and nothing on the way is a link."""
    if run is None:
        return False
    whole = Path(os.path.normpath(path.absolute()))
    places = [place for place in (run.absolute(), run.resolve()) if place in whole.parents]
    try:
        for place in places:
            refuse_links(whole, place)
    except CheckpointUnsafeError:
        return False
    return bool(places)


def options_to_vouch(config: Any, run: Path) -> list[str]:
    """The options with which a later command may do what the files of a run say, which the user has typed now.

    Args:
        config: of the run.
        run: its directory.

    Returns:
        Such as `["--env", "arm:Arm"]`; `["--trust"]` if something has no option of its own. `--plugin` comes first, for
        an algorithm and a backend that are in no distribution.
    """
    algorithm = algorithm_of(type(config))
    used = (
        named_by_user("algorithm", algorithm.name if algorithm else ""),
        named_by_user("backend", config.backend),
    )
    plugins = [word for name in used if name is not None for word in ("--plugin", name)]
    # What this process has imported counts as installed here, and not there.
    here = [code for code in named_code(config) if not is_installed(code.name.partition(":")[0])]
    unsafe = [code for code, _ in untrusted(config)]
    named = [_option(code) for code in dict.fromkeys([*here, *unsafe]) if ":" in code.name or code in unsafe]
    is_large = next(iter(too_large(config.to_dict(), config.fields())), None) is not None
    is_elsewhere = config.output is not None and not _is_inside(Path(config.output), run)
    if is_large or is_elsewhere or ["--trust"] in named:
        return [*plugins, "--trust"]
    return [*plugins, *(word for option in named for word in option)]


def go_on(config: Any, run: Path) -> str:
    """The command that goes on with a run, as it is to be typed; see `options_to_vouch`."""
    return shlex.join(["plugrad", "train", "--resume", str(run), *options_to_vouch(config, run)])


def _option(code: NamedCode) -> list[str]:
    if code.setting == "plugin_names" and code.kinds == ():
        return ["--plugin", code.name]
    return ["--env", code.name] if code.setting == "env" else ["--trust"]


def trust_option(command: Any) -> Any:
    """Add `--trust` to a command."""
    return click.option(
        "--trust",
        is_flag=True,
        help="Call whatever the run's files name, write where they say, and start as much as they ask for. Only for a "
        "run that you trust.",
    )(command)
