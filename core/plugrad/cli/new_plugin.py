"""`plugrad new-plugin`: writes a new distribution with a plugin, made of a template.

A template is a whole distribution called plugrad-template, whose code runs and whose tests pass. It is copied under
another name.
"""

import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path

import click

from plugrad.checkpoint.disk import disk_errors, replace_file
from plugrad.cli.exits import debug_option
from plugrad.errors import ConfigError
from plugrad.hooks.plugin_records import list_plugins

KINDS = ("algorithm", "backend", "listener")
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_MADE_BY_RUNNING = ("__pycache__", ".pytest_cache", ".mypy_cache")


@click.command(name="new-plugin", short_help="Write a new plugin as a distribution of its own.")
@click.argument("name")
@click.option(
    "--kind", type=click.Choice(KINDS), default=KINDS[0], help="The kind of plugin.  [default: algorithm]"
)
@debug_option
def new_plugin(name: str, kind: str) -> None:
    """Write a new plugin: the distribution plugrad-NAME in ./plugrad-NAME.

    It works and its tests pass as it is; comments show what to change.
    """
    _check_name(name)
    folder = Path(f"plugrad-{name}")
    _write_plugin(folder, name, kind)
    click.echo(f"{kind} {name!r}, to be installed and tested as it is:")
    click.echo(f'  cd {folder} && python -m pip install -e ".[test]" && pytest')


def _check_name(name: str) -> None:
    """Refuse a name that is no name of a distribution, or that is taken by something installed."""
    if not _NAME.fullmatch(name) or name.startswith("plugrad-"):
        raise ConfigError(
            f"{name!r} cannot be the NAME in plugrad-NAME: a-z first, then a-z, 0-9 and single hyphens{_alike(name)}"
        )
    for record in list_plugins():
        if record.name == name:
            owner = f"{record.distribution} {record.version}"
            raise ConfigError(f"{name!r} is taken: {record.kind} {name!r} of {owner}")
    if find_spec(module_name(name)) is not None:
        raise ConfigError(f"{name!r} is taken: there is a package {module_name(name)} already")


def _alike(name: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    better = words.removeprefix("plugrad-").lstrip("-0123456789")
    return f"; type {better}" if _NAME.fullmatch(better) else ""


def module_name(name: str) -> str:
    """The module of a plugin: `plugrad_my_sac` of "my-sac"."""
    return "plugrad_" + name.replace("-", "_")


def _write_plugin(folder: Path, name: str, kind: str) -> None:
    """Copy the template of a kind under another name."""
    if folder.exists() or folder.is_symlink():
        raise ConfigError(f"{folder} is there already and stays as it is: remove it, or choose another name")
    template = files("plugrad.cli").joinpath("templates", kind)
    with disk_errors("write", folder):
        for path, text in [(rename(path, name), rename(text, name)) for path, text in _files_in(template)]:
            replace_file(folder / path, text.encode(), within=folder.parent)


def rename(text: str, name: str) -> str:
    """Replace the template's name in a text.

    Args:
        text: a path or the content of a file.
        name: of the new plugin.

    Returns:
        The text with the new names of the module, the tests, the classes and the plugin.
    """
    words = {
        "plugrad_template": module_name(name),
        "test_template": "test_" + name.replace("-", "_"),
        "Template": "".join(part.capitalize() for part in name.split("-")),
        "template": name,
    }
    return re.sub("|".join(words), lambda found: words[found[0]], text)


def _files_in(folder: Traversable, path: str = "") -> Iterator[tuple[str, str]]:
    """The path and the text of each file."""
    for each in folder.iterdir():
        if each.is_dir() and each.name not in _MADE_BY_RUNNING:
            yield from _files_in(each, f"{path}{each.name}/")
        elif each.is_file():
            yield path + each.name, each.read_text(encoding="utf-8")
