"""Opening a trained policy: the algorithm of a run directory or of a checkpoint, and the options for it."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from plugrad.algorithm import Algorithm
from plugrad.algorithm_config import AlgorithmConfig
from plugrad.checkpoint import list_saves
from plugrad.cli.options import parse_value
from plugrad.cli.run_directory import RunDirectory, name_missing_plugin, run_directories
from plugrad.cli.trust import Trust, look_for_plugin, look_in_current_folder, trust_option
from plugrad.config.sampling_settings import CODE_OF_SAMPLING
from plugrad.episodes import Episode
from plugrad.errors import ConfigError
from plugrad.hooks.registry import use_plugin
from plugrad.learner.modules.build import expect_weights
from plugrad.learner.state.checkpoint import as_checkpoint_error, load_state, with_hyperparameters_of
from plugrad.learner.state.untrusted import in_spaces_of, with_bounds_of_env
from plugrad.sampling.named_envs import env_name
from plugrad.sampling.vectorization import of_one_environment

_ENVIRONMENT = ("env", "env_config", "evaluation_env", "evaluation_env_config")


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


@dataclass(frozen=True)
class Choice:
    """What a command opens of a run, and with which environment.

    Attributes:
        trust: what the user vouches for; an environment that was typed replaces the run's, also that of evaluations.
        env_config: the environment's arguments that were typed, or None.
        checkpoint: "best" or "last"; None: the best if there is one, else the last.
        allow_other_bounds: whether the spaces of the environment may have other bounds than the run's; its own count.
    """

    trust: Trust = field(default_factory=Trust)
    env_config: Mapping[str, Any] | None = None
    checkpoint: str | None = None
    allow_other_bounds: bool = False

    def changes(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a run that change.

        Args:
            config: the run's settings, those of its environments at least.

        Returns:
            The changed settings. The arguments of the run's environment are not those of another one, which is printed.
        """
        env, own = self.trust.env, config.get("env_config") or {}
        typed = None if self.env_config is None else dict(self.env_config)
        if env is None:
            evaluated = {"evaluation_env", "evaluation_env_config"} & {
                k for k, v in config.items() if v is not None
            }
            names = ("env_config", *(("evaluation_env_config",) if evaluated else ()))
            return {} if typed is None else dict.fromkeys(names, typed)
        changes = {"env": env, "evaluation_env": None, "evaluation_env_config": None}
        if typed is None and env != config.get("env"):
            typed = config.get("evaluation_env_config") or {} if env == config.get("evaluation_env") else {}
            if own and typed != own:
                click.echo(
                    f"{env} is made without the run's env_config {own!r:.200}, which is of {config.get('env')}: "
                    "--env-config gives it another",
                    err=True,
                )
        return changes if typed is None else {**changes, "env_config": typed}


NO_CHOICE = Choice()


def open_trained(run: Path, backend: str | None, choice: Choice = NO_CHOICE) -> tuple[Algorithm, Path]:
    """Build the algorithm of a run and restore it.

    Args:
        run: a run directory, or a checkpoint. The settings of a run may name code as far as `choice.trust` allows;
            those of a checkpoint too if it trusts everything, else none.
        backend: another backend than the one that trained, or None.
        choice: what to open of it.

    Returns:
        The algorithm, in this process and without listeners, and the checkpoint.

    Raises:
        ConfigError: the run has no such checkpoint, or its settings name code that nobody vouches for.
        CheckpointError: the checkpoint cannot be read.
    """
    trust = choice.trust
    if not (run / "config.toml").is_file():
        if choice.checkpoint is not None:
            raise ConfigError(
                f"--checkpoint {choice.checkpoint}: {run} is no run directory, but a checkpoint"
            )
        if run.is_dir() and not list_saves(run) and next(run_directories(run), None) is not None:
            RunDirectory.open(run)  # says where one is
        return _open_checkpoint(run, backend, choice), run
    directory = RunDirectory(run)
    path = directory.checkpoint(choice.checkpoint)
    saved = load_state(path, kind="algorithm")
    with name_missing_plugin(run):
        trust.import_env(directory.named_env())
        config = directory.read_config(saved)
        config = alone(config)
        trust.check(config, directory.config_file)
        config = config.changed(**choice.changes({name: getattr(config, name) for name in _ENVIRONMENT}))
        config = config if backend is None else config.framework(backend)
        with as_checkpoint_error(saved):
            config = with_hyperparameters_of(in_spaces_of(config, saved), saved, "checkpoint")
        if (
            trust.env is not None or choice.allow_other_bounds
        ):  # the run's setting speaks of its own environment
            config = config.changed(allow_other_bounds=choice.allow_other_bounds)
        if choice.allow_other_bounds:
            config = with_bounds_of_env(config)
        with expect_weights(saved.state.get("learner", {})):
            algorithm = config.build_algo()
    algorithm.restore_from_path(str(path))
    return algorithm, path


def alone(config: AlgorithmConfig) -> AlgorithmConfig:
    """A run's settings for acting in this process, without listeners; nothing is recorded because its file says so."""
    config = config.plugins().learners(num_learners=0).env_runners(num_env_runners=0)
    return config.offline_data(output=None)


def _open_checkpoint(path: Path, backend: str | None, choice: Choice) -> Algorithm:
    saved = load_state(path, kind="algorithm").metadata.get("config")
    config = saved if isinstance(saved, Mapping) else {}
    choice.trust.import_env(config.get("env"))
    given: dict[str, Any] = {}
    if choice.trust.everything:
        given = {name: config[name] for name in CODE_OF_SAMPLING if config.get(name)}
    if choice.trust.env is not None or choice.env_config is not None:
        given |= choice.changes(config)
        if choice.trust.env is not None:  # that of evaluations too
            own = given.get("env_config", config.get("env_config") or {})
            given |= {"evaluation_env": choice.trust.env, "evaluation_env_config": own}
    return Algorithm.from_checkpoint(
        str(path), backend=backend, allow_other_bounds=choice.allow_other_bounds, **given
    )


def episodes_of(
    run: Path, make: Callable[..., Any], episodes: int, *, seed: int | None, choice: Choice
) -> Sequence[Episode]:
    """Let a run's policy act greedily for whole episodes.

    Args:
        run: as in `open_trained`.
        make: makes the environment of that which the run names, and of its `env_config`.
        episodes: how many.
        seed: of the environment; None: the run's.
        choice: as in `open_trained`.

    Returns:
        The episodes.
    """
    algorithm, _ = open_trained(run, None, choice)
    source = algorithm.config.env
    shown = partial(make, source)
    # Errors name it so.
    shown.__qualname__ = source if isinstance(source, str) else env_name(source)  # type: ignore[attr-defined]
    algorithm.config = of_one_environment(algorithm.config).changed(env=shown)
    try:
        return algorithm.play(episodes, seed=seed)
    finally:
        algorithm.stop()


def run_options(command: Any) -> Any:
    """Add the options of a `Choice`, which the command gets as `choice`, and `--plugin`."""

    @wraps(command)
    def with_choice(
        *arguments: Any,
        env: str | None,
        trust: bool,
        env_config: Any,
        checkpoint: str | None,
        allow_other_bounds: bool,
        **others: Any,
    ) -> Any:
        choice = Choice(Trust(env=env, everything=trust), env_config, checkpoint, allow_other_bounds)
        return command(*arguments, choice=choice, **others)

    def find_env(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
        return None if text is None else look_in_current_folder(text)

    env = click.option(
        "--env",
        metavar="NAME",
        callback=find_env,
        help="The environment, where the run names a function or what is not installed, or another one; default: the "
        "run's.",
    )
    env_config = click.option(
        "--env-config",
        metavar="DICT",
        callback=_parse_env_config,
        help="Arguments of the environment, such as '{gravity = 3.0}'; default: the run's, for its own environment.",
    )
    checkpoint = click.option(
        "--checkpoint",
        type=click.Choice(["best", "last"]),
        help="Which checkpoint of a run directory; default: the best if there is one, else the last.",
    )
    other_bounds = click.option(
        "--allow-other-bounds",
        is_flag=True,
        help="Take an environment whose actions or images have other bounds than the run's.",
    )
    return env(env_config(checkpoint(other_bounds(trust_option(plugin_option(with_choice))))))


def _parse_env_config(ctx: click.Context, param: click.Parameter, text: str | None) -> Any:
    return None if text is None else parse_value(AlgorithmConfig.fields()["env_config"], text)


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
