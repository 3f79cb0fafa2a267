"""`plugrad parity`: the same steps on two backends, and the first difference between them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from tempfile import TemporaryDirectory
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.cli.doctor import default_first
from plugrad.cli.exits import FAILED, debug_option
from plugrad.cli.first_batch import first_batch
from plugrad.cli.options import apply_settings
from plugrad.cli.parity_steps import Comparison, compare
from plugrad.cli.settings_command import AlgorithmChoice, SettingsCommand, algorithm_choice
from plugrad.cli.summary import env_name
from plugrad.cli.train_request import DEFAULT_ENV, DEFAULT_SEED
from plugrad.config.serialize import encode
from plugrad.errors import ConfigError
from plugrad.hooks.plugin_records import PluginRecord, list_plugins

TOLERANCE = 1e-5
_FIXED = {
    "backend": "parity compares two; name them with --backends ONE OTHER",
    "compile": "parity compares steps that are not compiled, since nobody sees into those that are",
}


@click.command(
    cls=SettingsCommand,
    short_help="Compare two backends step by step on one batch.",
    context_settings={"max_content_width": 110},
)
@click.argument("algorithm")
@click.option(
    "--backends", nargs=2, metavar="ONE OTHER", help="The backends.  [default: two that are installed]"
)
@click.option("--env", metavar="ENV", default=DEFAULT_ENV, help=f"The environment.  [default: {DEFAULT_ENV}]")
@click.option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    default=DEFAULT_SEED,
    help="Seed of everything random.  [default: 0]",
)
@click.option(
    "--steps", type=click.IntRange(1), metavar="N", default=5, help="Number of steps.  [default: 5]"
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    metavar="T",
    default=TOLERANCE,
    help="The largest difference that counts as equal.  [default: 1e-5]",
)
@click.option("--plugin", "plugins", multiple=True, metavar="NAME|FILE.py", help="See plugrad train --help.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@debug_option
@click.pass_context
def parity(ctx: click.Context, /, **arguments: Any) -> None:
    """Compare two backends step by step on ALGORITHM's first batch.

    Each step is compared in the outputs of the networks, the losses, the gradients before and after clipping, and the
    parameters after the step. Nothing is compiled. Differences are relative to the largest entry. The exit code is 1
    if a difference is above the tolerance.

    The numpy reference can be named, too. Its gradients are finite differences, so keep the network tiny:
    --rl_module.model_config "{fcnet_hiddens = [4]}".
    """
    choice = algorithm_choice(ctx)
    settings, own = choice.split(arguments)
    config = _config(choice, settings, own)
    backends = own["backends"] or two_backends(list_plugins())
    with TemporaryDirectory() as folder:
        batch = first_batch(config.framework(backends[0]), folder)
    found = compare(config, backends, batch, num_steps=own["steps"], tolerance=own["tolerance"])
    if own["as_json"]:
        about = {"algorithm": choice.algorithm, "env": env_name(config), "seed": config.seed}
        click.echo(json.dumps({**about, "equal": found.equal, **encode(asdict(found), "parity")}, indent=2))
    else:
        _show(found, f"{choice.algorithm} on {env_name(config)}, seed {config.seed}")
    ctx.exit(0 if found.equal else FAILED)


def _config(choice: AlgorithmChoice, settings: Mapping[str, str], own: Mapping[str, Any]) -> AlgorithmConfig:
    for name, why in _FIXED.items():
        if name in settings:
            raise ConfigError(f"--framework.{name}: {why}")
    config = choice.config_class().environment(own["env"]).debugging(seed=own["seed"])
    return apply_settings(config.plugins(*choice.listeners(own["plugins"])), settings)


def two_backends(records: Sequence[PluginRecord]) -> tuple[str, str]:
    """Two installed backends, the default one first. A backend that needs no framework is left out.

    Raises:
        ConfigError: there are not two.
    """
    backends = default_first(each for each in records if each.kind == "backend" and each.requires)
    ready = [each.name for each in backends if each.installed]
    if len(ready) < 2:
        more = [each.command for each in backends if not each.installed]
        raise ConfigError(
            f"parity compares two backends, and here is {', '.join(ready) or 'none'}: install another, such as "
            f"{more[0] if more else 'one that you write'}, or name two with --backends"
        )
    return ready[0], ready[1]


def _show(found: Comparison, title: str) -> None:
    console = Console()
    one, other = found.backends
    click.echo(f"{title}: {one} and {other}, {len(found.steps) - 1} steps of {found.rows} rows")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    stages = list(found.steps[-1])
    for column in ("step", *stages):
        table.add_column(column, justify="right")
    for number, step in enumerate(found.steps):
        table.add_row(str(number), *[_number(step, stage) for stage in stages])
    console.print(table)
    click.echo(_verdict(found))


def _number(step: dict[str, Any], stage: str) -> str:
    return f"{step[stage].difference:.1e}" if stage in step else ""


def _verdict(found: Comparison) -> str:
    if found.parting is None:
        largest = max(each.difference for step in found.steps for each in step.values())
        return f"equal: no difference above {largest:.1e}, and {found.tolerance:g} are allowed"
    where, values = found.parting, found.parting.values
    at = f" at {list(where.index)}" if where.index else ""
    numbers = ", ".join(f"{backend} {value!r}" for backend, value in zip(found.backends, values, strict=True))
    return (
        f"they part at step {where.step}, {where.stage} of {where.name}{at}: {numbers}; that is {where.difference:.1e} "
        f"of the largest entry, and {found.tolerance:g} are allowed"
    )
