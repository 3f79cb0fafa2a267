"""`plugrad train --seeds`: runs of several seeds as one program, each with a directory of its own."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from time import monotonic

from plugrad.algorithm import Algorithm
from plugrad.algorithm_config import AlgorithmConfig
from plugrad.cli.display import LINE_EVERY_S, OutputConsole, print_line
from plugrad.cli.progress import Goals, Progress, range_words, return_words
from plugrad.cli.run_directory import RunDirectory, default_path, refuse_used, training_lock
from plugrad.cli.train_loop import StopSignals, TrainLoop, env_name, print_summary, summarize
from plugrad.cli.train_request import TrainRequest
from plugrad.errors import ConfigError
from plugrad.hooks.manager import HookManager


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
