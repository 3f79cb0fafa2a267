"""`plugrad train`: from a command line to a run directory with a trained policy in it."""

import atexit
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plugrad.cli.display import OutputConsole, open_display
from plugrad.cli.exits import debug_option
from plugrad.cli.goals import DEFAULT_TIMESTEPS, Goals
from plugrad.cli.resume import expecting, newest_good_save, resume
from plugrad.cli.run_directory import RunDirectory, default_path, saying_what_a_run_needs, training_lock
from plugrad.cli.settings_command import SettingsCommand, chosen
from plugrad.cli.signals import StopSignals
from plugrad.cli.summary import arena, print_summary, summary_of
from plugrad.cli.train_loop import TrainLoop
from plugrad.cli.train_request import TrainRequest
from plugrad.cli.trust import Trust, trust_option
from plugrad.errors import ConfigError
from plugrad.hooks.manager import HookManager
from plugrad.hooks.registry import load_listener
from plugrad.learner import checkpointing

if TYPE_CHECKING:
    from plugrad.algorithm import Algorithm


@click.command(cls=SettingsCommand, context_settings={"max_content_width": 110})
@click.argument("algorithm", required=False)
@click.argument("env", required=False)
@click.option(
    "--env",
    "named_env",
    metavar="NAME",
    help="The same as ENV; with --resume, the run's environment typed again.",
)
@trust_option
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
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="NAME|FILE.py",
    help="A plugin to load: an installed listener; or a file, or module:Name, with a listener, an algorithm or a "
    "backend, called as the file is.",
)
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
    # Not of the config: whoever resumes the run types the option again, or not.
    listeners = HookManager([load_listener("tensorboard")] if request.tensorboard else [], {})
    with StopSignals() as signals, ExitStack() as locked:
        atexit.register(signals.skip_teardown)  # comes after what frameworks and plugins will register
        run = RunDirectory.open(request.resume) if request.resume else None
        if run is None:
            save, config = None, request.fresh_config()
        else:
            locked.enter_context(training_lock(run.path))
            save = newest_good_save(run)
            config = request.resumed_config(run, checkpointing.stored_bytes(save.state))
        with saying_what_a_run_needs(request.resume), expecting(save):
            algorithm = config.build_algo()
        try:
            if run is None or save is None:
                path = request.out or default_path(config, request.algorithm)
                locked.enter_context(training_lock(path))
                run = RunDirectory.create(path, config)
            else:
                resume(algorithm, run, save, request.whose_hyperparameters)
                run.write_config(algorithm.config)
            _train(request, algorithm, run, signals, listeners)
        finally:
            algorithm.stop()
    ctx.exit(signals.exit_code)


def _request(ctx: click.Context, arguments: dict[str, Any]) -> TrainRequest:
    choice = chosen(ctx)
    settings, own = choice.split(arguments)
    own |= {"algorithm": choice.algorithm, "plugins": choice.listeners(own["plugins"])}
    own |= {"env": _one_env(own.pop("named_env"), own["env"])}
    own["trust"] = Trust(own["env"], own["trust"], settings=settings, listeners=own["plugins"])
    return TrainRequest(
        config_class=choice.config_class, providers=choice.providers, settings=settings, **own
    )


def _one_env(named: str | None, positional: str | None) -> str | None:
    if None not in (named, positional) and named != positional:
        raise ConfigError(f"two environments are given: {positional} and --env {named}")
    return named or positional


def _train(
    request: TrainRequest,
    algorithm: "Algorithm",
    run: RunDirectory,
    signals: StopSignals,
    listeners: HookManager,
) -> None:
    console = OutputConsole()
    algorithm.run_directory = str(run.path)
    config = algorithm.config
    given, threshold = request.stop_reward, algorithm.env_spec_reward_threshold
    goals = Goals(
        reward=threshold if given is None else given,
        timesteps=int(request.stop_timesteps),
        seconds=request.stop_time,
    )
    title = f"{request.algorithm} on {arena(config)} with {config.backend}, seed {config.seed}"
    with ExitStack() as stack:
        stack.callback(listeners.call_hook, "algorithm_stopped", algorithm=algorithm)
        display = stack.enter_context(open_display(console, title, goals, quiet=request.quiet))
        loop = TrainLoop(
            algorithm=algorithm,
            run=run,
            goals=goals,
            display=display,
            signals=signals,
            listeners=listeners,
            save_every=request.save_every,
        )
        outcome = loop()
    summary = summary_of(outcome, config, request.algorithm, goals)
    run.write_summary(summary)
    if loop.output_is_gone:
        raise BrokenPipeError  # all is saved
    print_summary(console, summary, run.path, quiet=request.quiet)
