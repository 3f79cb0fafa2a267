"""`plugrad train`: trains a policy and keeps settings, metrics and checkpoints in a run directory."""

import atexit
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import click

from plugrad.algorithm import Algorithm
from plugrad.algorithm_config import AlgorithmConfig
from plugrad.cli.display import LINE_EVERY_S, OutputConsole, open_display, print_line
from plugrad.cli.exits import debug_option, typed_command
from plugrad.cli.options import Count, Number, NumberOfSeeds
from plugrad.cli.progress import Goals, Progress, range_words, return_words
from plugrad.cli.run_directory import (
    RunDirectory,
    default_path,
    name_missing_plugin,
    refuse_used,
    training_lock,
)
from plugrad.cli.settings_command import SettingsCommand, algorithm_choice
from plugrad.cli.train_loop import StopSignals, TrainLoop, env_name, print_summary, summarize
from plugrad.cli.train_request import TrainRequest
from plugrad.cli.trust import Trust, trust_option
from plugrad.errors import ConfigError, EnvContractError
from plugrad.hooks.manager import HookManager
from plugrad.hooks.registry import load_listener
from plugrad.learner.modules.build import expect_weights
from plugrad.learner.state.untrusted import in_spaces_of


@click.command(cls=SettingsCommand, context_settings={"max_content_width": 110})
@click.argument("algorithm", required=False)
@click.argument("env", required=False)
@click.option(
    "--env",
    "named_env",
    metavar="NAME",
    help="The same as ENV. With --resume: the run's environment, where its config.toml names a function or what is not "
    "installed.",
)
@trust_option
@click.option(
    "--backend",
    metavar="NAME",
    help=f"One that plugrad backends lists.  [default: {AlgorithmConfig().backend}]",
)
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Seed of everything random.  [default: 0]")
@click.option(
    "--seeds",
    type=NumberOfSeeds(),
    metavar="N",
    help="Train N runs as one program, with seeds from --seed on. Each has a run directory of its own: with --out DIR "
    "they are DIR/s0, DIR/s1 and so on.",
)
@click.option(
    "--stop-reward",
    type=Number(),
    metavar="R",
    help="Stop at this mean return over 20 episodes.  [default: with --resume the run's, else the environment's "
    "reward threshold]",
)
@click.option(
    "--stop-timesteps",
    type=Count(),
    metavar="N",
    help="Stop after N environment steps, counting those before a resume.  [default: with --resume the run's, "
    "else what --tuned says, else 1000000]",
)
@click.option(
    "--stop-time",
    type=Number(above=0),
    metavar="S",
    help="Stop after S seconds of training in this session.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The run directory.  [default: runs/ALGORITHM-ENV-BACKEND-sSEED-TIME]",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Settings to start from: TOML, or JSON if it ends in .json.",
)
@click.option(
    "--tuned",
    is_flag=True,
    help="Start from the settings that come with the algorithm for ENV: plugrad algorithms ALGORITHM shows them.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="RUN",
    help="Continue this run, in its directory. --backend may be another than before.",
)
@click.option(
    "--init",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="RUN",
    help="Start a new run from the weights of this one, or of a checkpoint, as far as they fit, such as from a policy "
    "that bc cloned. What is left is printed.",
)
@click.option(
    "--hyperparameters",
    type=click.Choice(["checkpoint", "config"]),
    help="With --resume: train with the settings of the checkpoint, or with those of the run's config.toml and of "
    "--training.* options.  [default: checkpoint]",
)
@click.option(
    "--new-episodes",
    is_flag=True,
    help="With --resume: do not replay the episodes that ran when the checkpoint was saved, but begin others with "
    "other seeds. Leaves an episode in which the simulator fails. With it may change: "
    f"{', '.join(name for name, info in AlgorithmConfig.fields().items() if info.new_episodes)}.",
)
@click.option(
    "--save-every",
    type=click.IntRange(1),
    metavar="N",
    help="Write a checkpoint every N iterations.  [default: every 10 seconds]",
)
@click.option(
    "--learners",
    type=click.IntRange(0),
    metavar="N",
    help="Number of remote learners; 0: learn in this process.",
)
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="NAME|FILE.py",
    help="Load a plugin: an installed listener by its name; or a listener, an algorithm or a backend by its file or "
    "module:Name.",
)
@click.option("--tensorboard", is_flag=True, help="Write TensorBoard events into the run directory too.")
@click.option("--quiet", "-q", is_flag=True, help="Print the run's path and its best mean return only.")
@debug_option
@click.pass_context
def train(ctx: click.Context, /, **arguments: Any) -> None:
    """Train a policy; without arguments, PPO on CartPole-v1.

    Training stops when the mean return over 20 episodes reaches the environment's reward threshold, if it has one, and
    at --stop-timesteps at the latest. The run directory gets the settings, the metrics and the checkpoints.
    """
    request = _request(ctx, arguments)
    # Not part of the config: whoever resumes the run decides anew.
    listeners = HookManager([load_listener("tensorboard")] if request.tensorboard else [], {})
    with StopSignals() as signals, ExitStack() as lock, ExitStack() as cleanup:
        atexit.register(signals.skip_teardown)  # runs after what frameworks and plugins register later
        if request.seeds is not None:
            train_seeds(request, request.seeds, signals, listeners, cleanup)
        else:
            begun = _begin_run if request.resume is None else _resume_run
            _train(request, *begun(request, lock, cleanup), signals, listeners)
    ctx.exit(signals.exit_code)


def _request(ctx: click.Context, arguments: dict[str, Any]) -> TrainRequest:
    choice = algorithm_choice(ctx)
    settings, own = choice.split(arguments)
    own |= {"algorithm": choice.algorithm, "plugins": choice.listeners(own["plugins"])}
    own |= {"env": _one_env(own.pop("named_env"), own["env"])}
    own["trust"] = Trust(own["env"], own["trust"], settings=settings, listeners=own["plugins"])
    return TrainRequest(
        config_class=choice.config_class, local_plugins=choice.local_plugins, settings=settings, **own
    )


def _one_env(named: str | None, positional: str | None) -> str | None:
    if None not in (named, positional) and named != positional:
        raise ConfigError(f"two environments are given: {positional} and --env {named}")
    return named or positional


def _begin_run(
    request: TrainRequest, lock: ExitStack, cleanup: ExitStack
) -> tuple[Algorithm, RunDirectory, Goals]:
    config = request.fresh_config()
    algorithm = config.build_algo()
    cleanup.callback(algorithm.stop)
    path = request.out or default_path(config, request.algorithm)
    if request.init is not None:
        started = algorithm.start_from_path(request.init)
        click.echo(str(started), err=True)
    lock.enter_context(training_lock(path))
    run = RunDirectory.create(path, config)
    return algorithm, run, request.goals(algorithm, run)


def _resume_run(
    request: TrainRequest, lock: ExitStack, cleanup: ExitStack
) -> tuple[Algorithm, RunDirectory, Goals]:
    path = Path(request.resume or "")
    run = RunDirectory.open(path)
    lock.enter_context(training_lock(path))
    save = run.newest_undamaged_save()
    config = in_spaces_of(request.resumed_config(run, save), save)
    with name_missing_plugin(path), expect_weights(save.state.get("learner", {})):
        algorithm = config.build_algo()
    cleanup.callback(algorithm.stop)
    try:
        algorithm.restore_from_path(
            str(save.path), hyperparameters=request.whose_hyperparameters, new_episodes=request.new_episodes
        )
    except EnvContractError as error:  # a running episode cannot be replayed
        if not request.new_episodes:
            error.add_note(f"begin others: {shlex.join([*typed_command(), '--new-episodes'])}")
        raise
    goals = request.goals(algorithm, run)
    run.metrics.truncate(algorithm.iteration)
    run.write_config(algorithm.config)
    return algorithm, run, goals


def _train(
    request: TrainRequest,
    algorithm: Algorithm,
    run: RunDirectory,
    goals: Goals,
    signals: StopSignals,
    listeners: HookManager,
) -> None:
    console = OutputConsole()
    algorithm.run_directory = str(run.path)
    config = algorithm.config
    run.write_stop(goals)
    title = f"{request.algorithm} on {env_name(config)} with {config.backend}, seed {config.seed}"
    with ExitStack() as stack:
        stack.callback(listeners.call_hook, "algorithm_stopped", algorithm=algorithm)
        show = stack.enter_context(open_display(console, title, goals, quiet=request.quiet))
        loop = TrainLoop(
            algorithm=algorithm,
            run=run,
            goals=goals,
            show=show,
            signals=signals,
            listeners=listeners,
            save_every=request.save_every,
            new_episodes=request.new_episodes,
        )
        outcome = loop.run_until_done()
    summary = summarize(outcome, config, request.algorithm, goals)
    run.write_summary(summary)
    if loop.output_is_gone:
        raise BrokenPipeError  # all is saved
    print_summary(console, summary, run.path, config, quiet=request.quiet)


# --- plugrad train --seeds: runs of several seeds as one program ---


def train_seeds(
    request: TrainRequest, seeds: int, signals: StopSignals, listeners: HookManager, cleanup: ExitStack
) -> None:
    """Train runs of several seeds, and print how each ended.

    Args:
        request: what was typed.
        seeds: how many.
        signals: Ctrl-C, SIGTERM and SIGHUP.
        listeners: see `TrainLoop`; they get the rows of all runs.
        cleanup: gets what must be closed at the end.

    Raises:
        ConfigError: a setting rules out many seeds as one program, or a run's directory is not empty.
    """
    if request.resume is not None:
        raise ConfigError("--seeds is for new runs: each of its runs goes on alone, with --resume RUN")
    config = request.fresh_config()
    batch = config.build_seeds(seeds)
    cleanup.callback(batch.stop)
    runs = _begin_runs(request, batch.algorithms, cleanup)
    goals = [request.goals(each, run) for each, run in zip(batch.algorithms, runs, strict=True)]
    for run, goal in zip(runs, goals, strict=True):
        run.write_stop(goal)
    console = OutputConsole()
    title = f"{request.algorithm} on {env_name(config)} with {config.backend}, {seeds} seeds"
    lines = SeedLines(console, title, seeds, quiet=request.quiet)
    loops = [
        TrainLoop(
            algorithm=algorithm,
            run=run,
            goals=goal,
            show=partial(lines.show, number),
            signals=signals,
            listeners=listeners,
            save_every=request.save_every,
        )
        for number, (algorithm, run, goal) in enumerate(zip(batch.algorithms, runs, goals, strict=True))
    ]
    try:
        batch.run([partial(_run, request, *each) for each in zip(loops, goals, strict=True)])
    finally:
        for algorithm in batch.algorithms:
            listeners.call_hook("algorithm_stopped", algorithm=algorithm)
    if any(loop.output_is_gone for loop in loops):
        raise BrokenPipeError  # all is saved
    for run, loop in zip(runs, loops, strict=True):
        print_summary(console, run.read_summary(), run.path, loop.algorithm.config, quiet=True)


def _begin_runs(
    request: TrainRequest, algorithms: Sequence[Algorithm], cleanup: ExitStack
) -> list[RunDirectory]:
    """Make the directories of all runs, or of none if one cannot be used."""
    paths = [_path_of(request, each.config) for each in algorithms]
    for path in paths:
        refuse_used(path)
    for algorithm, path in zip(algorithms, paths, strict=True):
        cleanup.enter_context(training_lock(path))
        algorithm.run_directory = str(path)
    return [RunDirectory.create(path, each.config) for each, path in zip(algorithms, paths, strict=True)]


def _path_of(request: TrainRequest, config: AlgorithmConfig) -> Path:
    return default_path(config, request.algorithm) if request.out is None else request.out / f"s{config.seed}"


def _run(request: TrainRequest, loop: TrainLoop, goals: Goals) -> None:
    outcome = loop.run_until_done()
    loop.run.write_summary(summarize(outcome, loop.algorithm.config, request.algorithm, goals))


class SeedLines:
    """A line for all seeds together every `LINE_EVERY_S` seconds.

    Args:
        console: where the lines go.
        title: the first line.
        seeds: how many.
        quiet: print nothing.
    """

    def __init__(self, console: OutputConsole, title: str, seeds: int, *, quiet: bool) -> None:
        self._console, self._quiet = console, quiet
        self._last: list[Progress | None] = [None] * seeds
        self._shown_at = monotonic()
        if not quiet:
            print_line(console, title)

    def show(self, number: int, progress: Progress) -> None:
        """Keep the progress of one run, and print a line, unless the last one is too recent.

        Args:
            number: of the run.
            progress: of the run.
        """
        self._last[number] = progress
        if not self._quiet and monotonic() - self._shown_at >= LINE_EVERY_S:
            self._shown_at = monotonic()
            print_line(self._console, _seeds_line([each for each in self._last if each is not None]))


def _seeds_line(runs: Sequence[Progress]) -> str:
    """The progress of several runs in one line."""
    parts = [
        f"{sum(each.timesteps for each in runs):>11,} steps",
        f"{max(each.seconds for each in runs):7.1f} s",
    ]
    returns = [each.return_mean for each in runs if each.return_mean is not None]
    if returns:
        middle = f"{return_words(median(returns)):>8}"
        parts.append(f"return {middle}, {range_words(min(returns), max(returns))}")
    return "  ".join(parts)
