"""Opening a trained policy: the algorithm of a run directory or of a checkpoint, and the options for it."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from plugrad.algorithm import Algorithm
from plugrad.cli.run_directory import RunDirectory, name_missing_plugin
from plugrad.cli.trust import Trust, trust_option
from plugrad.cli.typed_names import look_for_plugin, look_in_current_folder
from plugrad.episodes import Episode
from plugrad.hooks.registry import use_plugin
from plugrad.learner import checkpointing
from plugrad.learner.expected_weights import expect_weights
from plugrad.sampling.named_envs import env_name

NO_TRUST = Trust()


class RunPath(click.Path):
    """An argument that is a run directory or a checkpoint; of a policy file the error says what to do with it."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, exists=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path. See `click.ParamType.convert`."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.is_dir():
            self.fail(
                f"{path} is a file, and a run or checkpoint is a directory. A policy file has no environment: give the "
                f"run that it comes from, or act with it in Python: plugrad.load_policy({str(path)!r})"
                ".predict(observation)",
                param,
                ctx,
            )
        return path


def open_trained(run: Path, backend: str | None, trust: Trust = NO_TRUST) -> tuple[Algorithm, Path]:
    """Build the algorithm of a run and restore it.

    Args:
        run: a run directory, whose best checkpoint is used, or a checkpoint. The settings of a run may name
            code as far as `trust` allows; those of a checkpoint may not.
        backend: another backend than the one that trained, or None.
        trust: what the user vouches for; an environment that was typed replaces the run's.

    Returns:
        The algorithm, in this process and without listeners, and the checkpoint.

    Raises:
        ConfigError: the run has no checkpoint, or its settings name code that nobody vouches for.
        CheckpointError: the checkpoint cannot be read.
    """
    if not (run / "config.toml").is_file():
        return Algorithm.from_checkpoint(str(run), backend=backend, env=trust.env), run
    directory = RunDirectory(run)
    path = directory.checkpoint()
    saved = checkpointing.load(path, kind="algorithm")
    with name_missing_plugin(run):
        config = directory.read_config(saved)
        config = config.plugins().learners(num_learners=0).env_runners(num_env_runners=0)
        config = config.offline_data(
            output=None
        )  # whoever opens a run records nothing because its file says so
        trust.check(config, directory.config_file)
        config = config if trust.env is None else config.environment(trust.env)
        config = config if backend is None else config.framework(backend)
        with expect_weights(saved.state.get("learner", {})):
            algorithm = config.build_algo()
    algorithm.restore_from_path(str(path))
    return algorithm, path


def episodes_of(
    run: Path, make: Callable[..., Any], episodes: int, *, seed: int | None, trust: Trust
) -> Sequence[Episode]:
    """Let a run's policy act greedily for whole episodes.

    Args:
        run: as in `open_trained`.
        make: makes the environment of that which the run names, and of its `env_config`.
        episodes: how many.
        seed: of the environment; None: the run's.
        trust: as in `open_trained`.

    Returns:
        The episodes.
    """
    algorithm, _ = open_trained(run, None, trust)
    source = algorithm.config.env
    changes = {"num_envs_per_env_runner": 1, "vectorization_mode": "sync"}
    shown = partial(make, source)
    # Errors name it so.
    shown.__qualname__ = source if isinstance(source, str) else env_name(source)  # type: ignore[attr-defined]
    algorithm.config = algorithm.config.changed(env=shown, **changes)
    try:
        return algorithm.play(episodes, seed=seed)
    finally:
        algorithm.stop()


def run_options(command: Any) -> Any:
    """Add `--env`, `--trust` and `--plugin` to a command that opens a run."""

    def find_env(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
        return None if text is None else look_in_current_folder(text)

    env = click.option(
        "--env",
        metavar="NAME",
        callback=find_env,
        help="The environment, where the run names a function or what is not installed; default: the run's.",
    )
    return env(trust_option(plugin_option(command)))


def watch_options(command: Any) -> Any:
    """Add RUN, `--episodes`, `--seed` and the `run_options` to a command that shows episodes."""
    run = click.argument("run", type=RunPath())
    episodes = click.option(
        "--episodes", type=click.IntRange(1), metavar="N", default=1, help="Number of episodes.  [default: 1]"
    )
    seed = click.option(
        "--seed", type=click.IntRange(0), metavar="N", help="Seed of the environment; default: the run's."
    )
    return run(episodes(seed(run_options(command))))


def plugin_option(command: Any) -> Any:
    """Add `--plugin` to a command."""

    def use(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> None:
        for text in texts:
            use_plugin(look_for_plugin(text))

    return click.option(
        "--plugin",
        multiple=True,
        metavar="FILE.py",
        expose_value=False,
        callback=use,
        help="The run's algorithm or backend, if it is in no distribution.",
    )(command)
