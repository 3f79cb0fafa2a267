"""The command line: `plugrad train`, `eval`, `play` and more, one file for each.

`--help`, `inspect`, `algorithms`, `plugins`, `new-plugin` and `doctor` import no framework.
"""

import os

import click

from plugrad.cli.algorithms import algorithms
from plugrad.cli.certify import certify
from plugrad.cli.doctor import doctor
from plugrad.cli.eval import evaluate
from plugrad.cli.exits import debug_option
from plugrad.cli.export import export
from plugrad.cli.inspect import inspect_checkpoint
from plugrad.cli.new_plugin import new_plugin
from plugrad.cli.parity import parity
from plugrad.cli.play import play
from plugrad.cli.plot import plot
from plugrad.cli.plugin_commands import PluginCommands
from plugrad.cli.plugins import plugins
from plugrad.cli.record import record
from plugrad.cli.train import train
from plugrad.cli.video import video


@click.group(cls=PluginCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="plugrad", prog_name="plugrad")
@debug_option
def main() -> None:
    """Train, evaluate and inspect reinforcement learning on any framework."""
    # TensorFlow's notices would cover the display. A value that you have set stays.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


for command in (
    train,
    evaluate,
    record,
    export,
    play,
    video,
    plot,
    inspect_checkpoint,
    algorithms,
    plugins,
    new_plugin,
    parity,
    certify,
    doctor,
):
    main.add_command(command)

__all__ = ["main"]
