"""Names of classes and plugins that were typed on the command line: looked up in the current folder, too.

Names in files, such as a run's `config.toml`, are never looked up there.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

from plugrad.errors import ConfigError


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
