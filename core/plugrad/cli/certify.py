"""`plugrad certify`: runs the suite on a plugin and writes what it proves."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from plugrad.checkpoint.disk import disk_errors, replace_file
from plugrad.cli.exits import FAILED, debug_option
from plugrad.cli.trust import look_for_plugin
from plugrad.errors import PluginError, did_you_mean
from plugrad.hooks.local_plugins import load_local_plugin, whole_name
from plugrad.hooks.plugin_records import list_plugins
from plugrad.importing.names import is_local_plugin
from plugrad.importing.on_use import require_extra

KINDS = ("backend", "algorithm")
_PYTEST_OPTIONS = (
    "-p",
    "plugrad.testing.fixtures",
    "-p",
    "plugrad.testing.certifying",
    "-p",
    "no:cacheprovider",
)


@click.command(short_help="Prove a backend or an algorithm, and write what is proven.")
@click.argument("name", metavar="NAME|FILE.py")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the certificate, as JSON.",
)
@click.option("-k", "some", metavar="WORDS", help="Only these tests, as pytest selects them. Proves nothing.")
@debug_option
@click.pass_context
def certify(ctx: click.Context, name: str, output: Path | None, some: str | None) -> None:
    """Run plugrad's suite on the backend or the algorithm NAME, and say what it proves.

    The exit code is 0 if every test passes and every capability that the backend declares is proven. Tests of other
    capabilities are skipped. Needs pytest: pip install "plugrad[test]".
    """
    require_extra("pytest", "test", "plugrad certify")
    name = look_for_plugin(name)
    name, kind = (
        (whole_name(name), load_local_plugin(name).tier) if is_local_plugin(name) else (name, _kind(name))
    )
    with TemporaryDirectory() as folder:
        found = _certificate(Path(folder), name, kind, ("-k", some) if some else ())
    if output is not None:
        with disk_errors("write", output):
            replace_file(output, f"{json.dumps(found, indent=2)}\n".encode())
    _show(found)
    ctx.exit(0 if found["proven"] else FAILED)


def _kind(name: str) -> str:
    kinds = {record.name: record.kind for record in list_plugins() if record.kind in KINDS}
    if name not in kinds:
        raise PluginError(
            f"no backend or algorithm {name!r}; installed: {', '.join(kinds)}.{did_you_mean(name, kinds)}"
        )
    return kinds[name]


def _certificate(folder: Path, name: str, kind: str, options: tuple[str, ...]) -> dict[str, Any]:
    """Of a pytest of its own, with no settings but its own."""
    suite, written = folder / "test_suite.py", folder / "certificate.json"
    suite.write_text(f"from plugrad.testing.{kind}_suite import *\n", encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    about = ("--certify", name, "--certify-kind", kind, "--certificate", str(written))
    command = [sys.executable, "-m", "pytest", *_PYTEST_OPTIONS, "--tb=short", *about, *options, str(suite)]
    ended = subprocess.run(command, env={**os.environ, "PYTEST_ADDOPTS": ""}, check=False)
    if not written.exists():
        raise PluginError(f"{kind} {name!r}: pytest ended with code {ended.returncode} before any test ran")
    found: dict[str, Any] = json.loads(written.read_text(encoding="utf-8"))
    return found


def _show(found: dict[str, Any]) -> None:
    for capability, verdict in found.get("capabilities", {}).items():
        click.echo(f"{capability:<18} {verdict}")
    passed = sum(outcome == "passed" for outcome in found["tests"].values())
    click.echo(f"{passed} of {len(found['tests'])} tests passed")
    click.echo("proven" if found["proven"] else "not proven")
