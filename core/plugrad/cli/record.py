"""`plugrad record`: episodes of a trained policy on disk, for offline algorithms to learn from."""

from pathlib import Path

import click

from plugrad.cli.exits import debug_option
from plugrad.cli.plugin_option import plugin_option
from plugrad.cli.trained import open_trained
from plugrad.cli.trust import Trust, trust_options
from plugrad.offline import save_episodes


@click.command(short_help="Write episodes of a trained policy, to learn from.")
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--episodes", type=click.IntRange(1), metavar="N", default=20, help="How many.  [default: 20]")
@click.option(
    "--out", "-o", type=click.Path(path_type=Path), metavar="DIR", help="Where to.  [default: RUN/episodes]"
)
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Of the environments; default: the run's.")
@click.option("--explore", is_flag=True, help="Act as while training, not greedily.")
@click.option("--backend", metavar="NAME", help="Act on another backend than the run was trained with.")
@trust_options
@plugin_option
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
    """Write whole episodes of RUN's policy, for plugrad train bc --training.input_ DIR.

    RUN is a run directory, of which the best checkpoint is taken, or a checkpoint. A directory that holds episodes
    gets these in addition.
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
