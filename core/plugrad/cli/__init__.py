"""The command line: `plugrad train`, `eval`, `play` and more, one file for each.

A command's file is imported when the command is called: `--help` imports neither numpy nor Gymnasium, and `inspect`,
`algorithms`, `plugins`, `new-plugin` and `doctor` import no framework.
"""

import os

import click

from plugrad.cli.command_group import CommandGroup
from plugrad.cli.exits import debug_option

COMMANDS = {
    "algorithms": ("algorithms:algorithms", "List the algorithms, their spaces and tuned settings."),
    "backends": ("backends:backends", "List the backends, their devices and what each can do."),
    "certify": ("certify:certify", "Prove a backend or an algorithm, and write what is proven."),
    "completion": ("completion:completion", "Print the script with which a shell completes plugrad."),
    "doctor": ("doctor:doctor", "Show what is installed, what is missing, and what to type."),
    "eval": ("eval:evaluate", "Print the mean return of a trained policy."),
    "export": ("export:export", "Write a trained policy as one file."),
    "inspect": (
        "inspect:inspect_checkpoint",
        "Show what is in a checkpoint or a policy file and check every byte.",
    ),
    "ls": ("ls:ls", "List the runs below a folder."),
    "migrate": (None, "Rewrite programs for RLlib; prints the difference."),
    "new-plugin": ("new_plugin:new_plugin", "Write a new plugin as a distribution of its own."),
    "parity": ("parity:parity", "Compare two backends step by step on one batch."),
    "play": ("play:play", "Watch a trained policy act."),
    "plot": ("plot:plot", "Draw the learning curves of one or more runs."),
    "plugins": ("plugins:plugins", "List the installed plugins."),
    "record": ("record:record", "Write episodes of a trained policy as training data."),
    "report": ("report:report", "Write settings, curves, evaluation and film of runs as one HTML file."),
    "train": ("train:train", "Train a policy; without arguments, PPO on CartPole-v1."),
    "video": ("play:video", "Film episodes of a trained policy."),
}
"""`{name: (file and function in this folder, what the help says)}`; a test compares the help with the command's own.

None in place of the file: it is in the plugin `plugrad_rllib`.
"""


@click.group(
    cls=CommandGroup,
    own={name: (place and f"plugrad.cli.{place}", text) for name, (place, text) in COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="plugrad", prog_name="plugrad")
@debug_option
def main() -> None:
    """Train, evaluate and inspect reinforcement learning on any framework."""
    # A value that you have set stays. TensorFlow's notices would cover the display. What fails is raised, too.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "OMP_WAIT_POLICY" not in os.environ:
        # Torch's threads would spin while they wait. Where others use the cores, training took ten times as long. GNU's
        # threads spin for some microseconds, which is as good for others and spares most calls that wake them up.
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


__all__ = ["main"]
