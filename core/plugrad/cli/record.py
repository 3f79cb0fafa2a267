"""`plugrad record`: episodes of a trained policy on disk, as data for offline algorithms."""

from pathlib import Path

import click

from plugrad.cli.exits import debug_option
from plugrad.cli.trained import open_trained, run_options
from plugrad.cli.trust import Trust
from plugrad.offline import save_episodes


@click.command(short_help="Write episodes of a trained policy as training data.")
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--episodes", type=click.IntRange(1), metavar="N", default=20, help="Number of episodes.  [default: 20]"
)
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The directory to write to.  [default: RUN/episodes]",
)
@click.option(
    "--seed", type=click.IntRange(0), metavar="N", help="Seed of the environments; default: the run's."
)
@click.option("--explore", is_flag=True, help="Act as while training, not greedily.")
@click.option("--backend", metavar="NAME", help="Another backend than the run was trained with.")
@run_options
@debug_option
def record(
    run: Path,
    episodes: int,
    out: Path | None,
    seed: int | None,
    explore: bool,
    backend: str | None,
    env: str | None,
    trust: bool,
) -> None:
    """Write whole episodes of RUN's policy, as data for plugrad train bc --training.input_ DIR.

    RUN is a run directory, of which the best checkpoint is taken, or a checkpoint. Episodes that are in the directory
    already stay there.
    """
    algorithm, path = open_trained(run, backend, Trust(env=env, everything=trust))
    try:
        data = algorithm.record(episodes, seed=seed, explore=explore)
    finally:
        algorithm.stop()
    found = save_episodes(
        out or run / "episodes",
        data.episodes,
        observation_space=data.observation_space,
        action_space=data.action_space,
        about={"checkpoint": str(path), "explore": explore},
    )
    mean = sum(episode.get_return() for episode in data.episodes) / episodes
    click.echo(f"{episodes} episodes, {sum(map(len, data.episodes))} steps, mean return {mean:.1f}")
    click.echo(f"episodes: {found}")
