"""`plugrad train`: from a command line to a run directory with a trained policy in it."""

import atexit
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from plugrad.cli.algorithm_choice import chosen_algorithm, resumed_run
from plugrad.cli.display import open_display
from plugrad.cli.exits import debug_option
from plugrad.cli.goals import DEFAULT_TIMESTEPS, Goals
from plugrad.cli.options import SettingOption, given_settings, setting_options, write_sections
from plugrad.cli.resume import resume, saying_what_a_run_needs
from plugrad.cli.run_directory import RunDirectory, default_path
from plugrad.cli.signals import StopSignals
from plugrad.cli.summary import arena, print_summary, summary_of
from plugrad.cli.tensorboard import TensorBoardRecorder, require_tensorboard
from plugrad.cli.train_loop import TrainLoop
from plugrad.cli.train_request import TrainRequest
from plugrad.hooks.registry import get_algorithm

if TYPE_CHECKING:
    from plugrad.algorithm import Algorithm

_CHOICE = "plugrad.algorithm"


class TrainCommand(click.Command):
    """A command whose options are its own and the settings of the algorithm that its arguments name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Find the algorithm, then read the options."""
        flags = self._flags(ctx)
        name = chosen_algorithm(args, flags)
        with saying_what_a_run_needs(resumed_run(args, flags)):
            config_class = get_algorithm(name)
        ctx.meta[_CHOICE] = name, config_class, setting_options(config_class)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its own options and the settings."""
        settings: list[SettingOption] = ctx.meta[_CHOICE][2] if _CHOICE in ctx.meta else []
        return [*super().get_params(ctx), *settings]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Its own options, then a heading per section of the config."""
        _, config_class, settings = ctx.meta[_CHOICE]
        own = [param for param in super().get_params(ctx) if isinstance(param, click.Option)]
        with formatter.section("Options"):
            formatter.write_dl([row for option in own if (row := option.get_help_record(ctx))])
        formatter.write_paragraph()
        formatter.write_text(f"Settings of {config_class.__name__}, by section as in the file of --config.")
        write_sections(settings, ctx, formatter)

    def _flags(self, ctx: click.Context) -> frozenset[str]:
        options = [param for param in super().get_params(ctx) if isinstance(param, click.Option)]
        return frozenset(name for option in options if option.is_flag for name in option.opts)


@click.command(cls=TrainCommand, context_settings={"max_content_width": 110})
@click.argument("algorithm", required=False)
@click.argument("env", required=False)
@click.option("--backend", metavar="NAME", help="torch, tf2, ...  [default: torch]")
@click.option(
    "--seed", type=click.IntRange(0), metavar="N", help="Of everything that is random.  [default: 0]"
)
@click.option("--stop-reward", type=float, metavar="R", help="Stop at this mean return over 20 episodes.")
@click.option(
    "--stop-timesteps",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    default=DEFAULT_TIMESTEPS,
    show_default=False,
    help="Stop after so many environment steps of the run's whole life.  [default: 1000000]",
)
@click.option(
    "--stop-time",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="Stop after S seconds of training.",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="The run directory.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Settings to start from: TOML, or JSON if it ends in .json.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="RUN",
    help="Go on with a run, in its directory; --backend may differ.",
)
@click.option(
    "--hyperparameters",
    type=click.Choice(["checkpoint", "config"]),
    help="With --resume: train by the settings of the checkpoint, or by those of the run's config.toml and of "
    "--training.* options.  [default: checkpoint]",
)
@click.option(
    "--save-every",
    type=click.IntRange(1),
    metavar="N",
    help="Write a checkpoint every N iterations.  [default: every 10 seconds]",
)
@click.option(
    "--learners", type=click.IntRange(0), metavar="N", help="Remote learners; 0: learn in this process."
)
@click.option("--plugin", "plugins", multiple=True, metavar="FILE.py|NAME", help="A listener to load.")
@click.option("--tensorboard", is_flag=True, help="Write TensorBoard events into the run directory too.")
@click.option("--quiet", "-q", is_flag=True, help="Show nothing but the run's path and its best mean return.")
@debug_option
@click.pass_context
def train(ctx: click.Context, /, **arguments: Any) -> None:
    """Train a policy; without arguments, PPO on CartPole-v1.

    It stops at the environment's reward threshold (a mean return over 20 episodes) if it has one, and at
    --stop-timesteps at the latest. The run directory holds the settings, the metrics and the checkpoints.
    """
    request = _request(ctx, arguments)
    if request.tensorboard:
        require_tensorboard()
    with StopSignals() as signals:
        atexit.register(signals.skip_teardown)  # comes after what frameworks and plugins will register
        run = RunDirectory.open(request.resume) if request.resume else None
        config = request.resumed_config(run) if run else request.fresh_config()
        with saying_what_a_run_needs(request.resume):
            algorithm = config.build_algo()
        try:
            if run is None:
                run = RunDirectory.create(request.out or default_path(config, request.algorithm), config)
            else:
                resume(algorithm, run, request.whose_hyperparameters)
                run.write_config(algorithm.config)
            _train(request, algorithm, run, signals)
        finally:
            algorithm.stop()
    ctx.exit(signals.exit_code)


def _request(ctx: click.Context, arguments: dict[str, Any]) -> TrainRequest:
    name, config_class, options = ctx.meta[_CHOICE]
    own = {key: value for key, value in arguments.items() if key not in {option.name for option in options}}
    own["algorithm"] = name
    return TrainRequest(config_class=config_class, settings=given_settings(options, arguments), **own)


def _train(request: TrainRequest, algorithm: "Algorithm", run: RunDirectory, signals: StopSignals) -> None:
    console = Console()
    config = algorithm.config
    given, threshold = request.stop_reward, algorithm.env_spec_reward_threshold
    goals = Goals(
        reward=threshold if given is None else given,
        timesteps=int(request.stop_timesteps),
        seconds=request.stop_time,
    )
    title = f"{request.algorithm} on {arena(config)} with {config.backend}, seed {config.seed}"
    with ExitStack() as stack:
        recorders = [TensorBoardRecorder(run.path)] if request.tensorboard else []
        for recorder in recorders:
            stack.callback(recorder.close)
        display = stack.enter_context(open_display(console, title, goals, quiet=request.quiet))
        loop = TrainLoop(
            algorithm=algorithm,
            run=run,
            goals=goals,
            display=display,
            signals=signals,
            recorders=tuple(recorders),
            save_every=request.save_every,
        )
        outcome = loop()
    summary = summary_of(outcome, config, request.algorithm, goals)
    run.write_summary(summary)
    print_summary(console, summary, run.path, quiet=request.quiet)
