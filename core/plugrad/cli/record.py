"""`plugrad record`: episodes of a trained policy, or of its further training, as data for offline algorithms."""

from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import click
from rich.console import Console

from plugrad.algorithm import Algorithm
from plugrad.checkpoint.disk import refuse_links
from plugrad.cli.display import PlainLines
from plugrad.cli.exits import debug_option
from plugrad.cli.progress import SECONDS, TIMESTEPS, Progress, return_words, scalars
from plugrad.cli.terminal import waiting
from plugrad.cli.trained import Choice, RunPath, open_trained, run_options
from plugrad.offline import EpisodeData, save_episodes
from plugrad.types import DEFAULT_MODULE_ID


@click.command(short_help="Write episodes of a trained policy as training data.")
@click.argument("run", type=RunPath())
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
@click.option(
    "--timesteps",
    type=click.IntRange(1),
    metavar="N",
    help="Train on for N environment steps, and write what training samples instead.",
)
@click.option("--explore", is_flag=True, help="Act as while training, not greedily.")
@click.option(
    "--module",
    "module_id",
    metavar="ID",
    default=DEFAULT_MODULE_ID,
    help="With many agents: whose agents' episodes; default: the only module's.",
)
@click.option("--backend", metavar="NAME", help="Another backend than the run was trained with.")
@run_options
@debug_option
def record(
    run: Path,
    episodes: int,
    out: Path | None,
    seed: int | None,
    timesteps: int | None,
    explore: bool,
    module_id: str,
    backend: str | None,
    choice: Choice,
) -> None:
    """Write whole episodes of RUN's policy, as data for plugrad train bc --offline_data.input_ DIR.

    RUN is a run directory, whose best checkpoint is used, or a checkpoint. Episodes that are in the directory
    already stay there. RUN itself stays as it is, also with --timesteps.

    To record a whole training from its beginning: plugrad train ALGORITHM ENV --offline_data.output DIR
    """
    directory = out or run / "episodes"
    if out is None:
        refuse_links(directory, run)
    algorithm, path = open_trained(run, backend, choice)
    try:
        if timesteps is not None:
            _record_training(algorithm, timesteps, directory)
        else:
            with waiting(f"recording {episodes} episodes"):
                data = algorithm.record(episodes, seed=seed, explore=explore, module_id=module_id)
            _save(data, directory, {"checkpoint": str(path), "explore": explore})
    finally:
        algorithm.stop()
    click.echo(f"episodes: {directory}")


def _save(data: EpisodeData, directory: Path, about: Mapping[str, Any]) -> None:
    save_episodes(
        directory,
        data.episodes,
        observation_space=data.observation_space,
        action_space=data.action_space,
        about=about,
    )
    number = len(data.episodes)
    mean = sum(episode.get_return() for episode in data.episodes) / number
    click.echo(f"{number} episodes, {sum(map(len, data.episodes))} steps, mean return {return_words(mean)}")


def _record_training(algorithm: Algorithm, timesteps: int, directory: Path) -> None:
    """Train on, in memory only, and write the episodes that are sampled."""
    algorithm.record_training(str(directory))
    lines = PlainLines(Console(), f"training on for {timesteps:,} steps, which are recorded")
    steps, start = 0.0, perf_counter()
    while steps < timesteps:
        row = scalars(algorithm.train())
        steps += row["env_runners/num_env_steps_sampled"]
        seconds = perf_counter() - start
        now = {**row, TIMESTEPS: steps, SECONDS: seconds}
        lines.show(Progress.of(now, steps_per_second=steps / seconds))
    click.echo(f"{steps:.0f} steps of training")
