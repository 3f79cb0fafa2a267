"""`plugrad export`: the policy of a run as one file."""

from contextlib import ExitStack
from pathlib import Path

import click

from plugrad.cli.exits import debug_option
from plugrad.cli.terminal import waiting
from plugrad.cli.trained import Choice, open_trained, plugin_option
from plugrad.cli.trust import Trust, trust_option
from plugrad.learner.acting.saved_policy import load_policy
from plugrad.types import DEFAULT_MODULE_ID


@click.command(short_help="Write a trained policy as one file.")
@click.argument("run", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    required=True,
    help="The file, such as policy.safetensors or policy.onnx. One that is there is replaced.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["policy", "onnx"]),
    help="For plugrad.load_policy, or an ONNX model. Default: onnx if FILE ends with .onnx, else policy.",
)
@click.option(
    "--action-mask",
    is_flag=True,
    help="Give the ONNX model an input action_mask: the actions that are allowed.",
)
@click.option(
    "--guard",
    is_flag=True,
    help="Give the ONNX model an output observation_is_finite: False where an observation has NaN or infinity.",
)
@click.option(
    "--module",
    "module_id",
    metavar="ID",
    default=DEFAULT_MODULE_ID,
    help="Whose policy; default: the only module's.",
)
@trust_option
@plugin_option
@debug_option
def export(
    run: Path, out: Path, form: str | None, action_mask: bool, guard: bool, module_id: str, trust: bool
) -> None:
    """Write RUN's policy as one file, which plugrad.load_policy opens, or as an ONNX model.

    RUN is a run directory, whose best checkpoint is used, a checkpoint, or a policy file. The file has the
    network, its weights, the spaces and the statistics of normalised observations. It contains no code.
    With --trust, the network of a run directory may be of your own class.
    """
    is_onnx = form == "onnx" or (form is None and out.suffix == ".onnx")
    if action_mask and not is_onnx:
        raise click.UsageError("--action-mask is of ONNX models: add --format onnx")
    if guard and not is_onnx:
        raise click.UsageError(
            "--guard is of ONNX models; predict refuses such observations: add --format onnx"
        )
    with ExitStack() as opened:
        # Settings say how to make the network; a checkpoint does not.
        if trust and (run / "config.toml").is_file():
            algorithm, _ = open_trained(run, None, Choice(Trust(everything=True)))
            opened.callback(algorithm.stop)
            policy = algorithm.get_policy(module_id)
        else:
            policy = load_policy(run, module_id=module_id)
        with waiting(f"writing {out}"):
            if is_onnx:
                policy.export_onnx(out, action_mask=action_mask, guard=guard)
            else:
                policy.save(out)
    if form is None and out.suffix not in (".onnx", ".safetensors"):
        click.echo("a policy file, for plugrad.load_policy; an ONNX model: --format onnx", err=True)
    click.echo(f"{out}")
