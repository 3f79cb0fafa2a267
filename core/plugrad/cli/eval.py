"""`plugrad eval`: the mean return of a trained policy, without exploration."""

import json
from pathlib import Path

import click

from plugrad.cli.exits import debug_option
from plugrad.cli.returns import range_words, return_words
from plugrad.cli.trained import RunPath, open_trained, run_options
from plugrad.cli.trust import Trust
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
@click.option("--backend", metavar="NAME", help="Another backend than the run was trained with.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@run_options
@debug_option
def evaluate(
    run: Path,
    episodes: int | None,
    seed: int | None,
    backend: str | None,
    as_json: bool,
    env: str | None,
    trust: bool,
) -> None:
    """Print the mean return of whole episodes in which RUN's policy acts greedily.

    RUN is a run directory, whose best checkpoint is used, or a checkpoint. The same command gives the same
    episodes. Training never plays them. Without --seed, the run's own evaluations do not either, so they have not
    chosen the best checkpoint.
    """
    algorithm, path = open_trained(run, backend, Trust(env=env, everything=trust))
    try:
        if seed is None:
            seed = int(stream(algorithm.config.seed, "plugrad eval").integers(2**63))
        result = {"checkpoint": str(path), **algorithm.evaluate(num_episodes=episodes, seed=seed)}
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
    click.echo(f"checkpoint: {path}")
