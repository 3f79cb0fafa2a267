"""`plugrad export`: the policy of a run as one file."""

from pathlib import Path

import click

from plugrad.cli.exits import debug_option
from plugrad.cli.trained import plugin_option
from plugrad.learner.load_policy import load_policy
from plugrad.types import DEFAULT_MODULE_ID


@click.command(short_help="Write a trained policy as one file.")
@click.argument("run", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    required=True,
    help="The file, such as policy.safetensors. One that is there is replaced.",
)
@click.option(
    "--module",
    "module_id",
    metavar="ID",
    default=DEFAULT_MODULE_ID,
    help="Whose policy; default: the only module's.",
)
@plugin_option
@debug_option
def export(run: Path, out: Path, module_id: str) -> None:
    """Write RUN's policy as one file, which plugrad.load_policy opens.

    RUN is a run directory, of which the best checkpoint is taken, a checkpoint, or a policy file. The file has the
    network, its weights, the spaces and the statistics of normalised observations. It contains no code.
    """
    load_policy(run, module_id=module_id).save(out)
    click.echo(f"{out}")
