"""`plugrad eval`: the mean return of a trained policy."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click

from plugrad.algorithm import Algorithm
from plugrad.cli.exits import debug_option
from plugrad.cli.metrics_files import iterate_rows
from plugrad.cli.progress import EVALUATED_RETURN, ITERATION, RETURN, range_words, return_words
from plugrad.cli.run_directory import RunDirectory
from plugrad.cli.terminal import waiting
from plugrad.cli.trained import Choice, RunPath, open_trained, run_options
from plugrad.errors import ConfigError
from plugrad.rng_streams import stream


@click.command(name="eval", short_help="Print the mean return of a trained policy.")
@click.argument("run", type=RunPath())
@click.option(
    "--episodes",
    type=click.IntRange(1),
    metavar="N",
    help="Number of episodes; default: the run's evaluation_num_episodes.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    help="Seed of the episodes; default: one that the run's evaluations do not use.",
)
@click.option(
    "--explore/--greedy",
    default=None,
    help="Act as while training, or with the most probable actions; default: the run's evaluation_explore.",
)
@click.option("--backend", metavar="NAME", help="Another backend than the run was trained with.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@run_options
@debug_option
def evaluate(
    run: Path,
    episodes: int | None,
    seed: int | None,
    explore: bool | None,
    backend: str | None,
    as_json: bool,
    choice: Choice,
) -> None:
    """Print the mean return of whole episodes with RUN's policy.

    RUN is a run directory, whose best checkpoint is used, or a checkpoint. The best is that of the best mean return
    of the run's evaluations if it had any, else of training; --checkpoint last may be better. The same command gives
    the same episodes. Training never plays them. Without --seed, the run's own evaluations do not either, so they have
    not chosen the best checkpoint.
    """
    algorithm, path = open_trained(run, backend, choice)
    try:
        if seed is None:
            seed = int(stream(algorithm.config.seed, "plugrad eval").integers(2**63))
        chosen = _words_of_checkpoint(run, path, algorithm)
        number = episodes or algorithm.config.evaluation_num_episodes
        with waiting(f"evaluating {number} episodes"):
            found = algorithm.evaluate(num_episodes=episodes, seed=seed, explore=explore)
        result = {"checkpoint": str(path), "policy": chosen, **found}
    finally:
        algorithm.stop()
    if as_json:
        click.echo(json.dumps(result))
        return
    low, high = result["episode_return_min"], result["episode_return_max"]
    mean, number = result["episode_return_mean"], result["num_episodes"]
    click.echo(f"mean return {return_words(mean)} over {number} episodes ({range_words(low, high)})")
    for name, value in result.items():
        kind, slash, who = name.partition("/")
        if kind == "info":
            click.echo(f"mean {name}: {return_words(value)}")
        elif slash:  # agent_episode_returns_mean/<agent>, module_episode_returns_mean/<module>
            click.echo(f"mean return of {kind.partition('_')[0]} {who}: {return_words(value)}")
    click.echo(f"mean length {result['episode_len_mean']:.1f}")
    click.echo(f"policy: {chosen}")
    click.echo(f"checkpoint: {path}")


def _words_of_checkpoint(run: Path, path: Path, algorithm: Algorithm) -> str:
    """Which iteration a checkpoint is of, by which number it was chosen, and how to choose another."""
    words = f"iteration {algorithm.iteration}"
    if path == run:
        return words
    directory = RunDirectory(run)
    is_best = path == directory.best
    words += f", the {'best' if is_best else 'last'} checkpoint"
    row: Mapping[str, float] = {}
    with suppress(ConfigError):  # who evaluates a policy needs no metrics
        for row in iterate_rows(directory.metrics.jsonl):
            if row[ITERATION] >= algorithm.iteration:
                break
    row = row if row.get(ITERATION) == algorithm.iteration else {}
    numbers = [
        f"{return_words(row[key])} in {where}"
        for key, where in ((EVALUATED_RETURN, "evaluation"), (RETURN, "training"))
        if key in row
    ]
    if numbers:
        words += f": mean return {' and '.join(numbers[:1] if is_best else numbers)}"
    other = "last" if is_best else "best"
    return f"{words}; another one: --checkpoint {other}" if getattr(directory, other).is_dir() else words
