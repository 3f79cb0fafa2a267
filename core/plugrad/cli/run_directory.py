"""The directory of one training run.

config.toml        every setting
stop.toml          when the run ends, also if it is resumed
metrics.jsonl      one row per iteration; metrics.csv is the same as a table, see `metrics_files`
checkpoints/last   the newest checkpoint, to resume from
checkpoints/best   the checkpoint of the best mean return: of evaluations if there are any, else of training
summary.json       the outcome, written when the run ends
train.lock         the process that trains in the directory, as long as it does
"""

import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import islice
from math import inf, nan
from pathlib import Path
from typing import Any, TypeVar

import click
import tomli_w

from plugrad.algorithm.modules import SETTINGS_OF_MODULES
from plugrad.algorithm_config import AlgorithmConfig
from plugrad.checkpoint import Checkpoint, list_saves, load_checkpoint, runs, writer_lock
from plugrad.checkpoint.disk import disk_errors, refuse_links, replace_file
from plugrad.cli.metrics_files import MetricsFiles
from plugrad.cli.progress import Goals
from plugrad.cli.run_files import read_settings, read_table, read_text
from plugrad.cli.trust import go_on
from plugrad.config.from_files import check_size
from plugrad.config.serialize import decode_field
from plugrad.errors import (
    AlgorithmNotFoundError,
    BackendNotFoundError,
    CheckpointCorruptError,
    CheckpointError,
    CheckpointUnsafeError,
    ConfigError,
    PlugradError,
)
from plugrad.learner.state.checkpoint import as_checkpoint_error, load_state, stored_bytes
from plugrad.learner.state.untrusted import with_distribution_hint
from plugrad.module_spec import specs_of

# --- where runs are ---

MAX_DEPTH = 6
MAX_FOLDERS = 50_000
"""A folder of somebody else may have no end."""


def run_directories(folder: Path) -> Iterator[Path]:
    """The run directories below a folder, itself included; links are not followed.

    Args:
        folder: where to look, `MAX_DEPTH` levels deep and in at most `MAX_FOLDERS` folders.

    Yields:
        Each run directory. What is below one is left out.
    """
    waiting, seen = [(folder, 0)], 0
    while waiting and seen < MAX_FOLDERS:
        path, depth = waiting.pop()
        seen += 1
        try:
            with os.scandir(path) as entries:
                inner = [entry for _, entry in zip(range(MAX_FOLDERS), entries, strict=False)]
                folders = {each.name for each in inner if each.is_dir(follow_symlinks=False)}
                others = {each.name for each in inner} - folders
        except OSError:
            continue  # nobody may look into it, or it is gone
        if runs.CONFIG in others:
            yield path
        elif depth < MAX_DEPTH:
            waiting += [(path / each, depth + 1) for each in folders]


def with_those_below(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Run directories, and in place of a folder that is none those below it, such as the runs of `--seeds`.

    Args:
        paths: of folders. One without any run below it stays.
    """
    found: list[Path] = []
    for path in paths:
        is_run = RunDirectory(path).config_file.is_file()
        found += [path] if is_run else sorted(run_directories(path)) or [path]
    return tuple(found)


# --- the modules of a run when one of its checkpoints was saved; listeners may have added or removed some since ---

AnyConfig = TypeVar("AnyConfig", bound=AlgorithmConfig)


def _with_modules_of(config: AnyConfig, checkpoint: Checkpoint) -> AnyConfig:
    """A run's config with the modules that one of its checkpoints has."""
    with as_checkpoint_error(checkpoint):
        then, now = set(checkpoint.metadata.get("module_ids", ())), set(specs_of(config))
        if then == now or not then & now:
            return config
        saved, fields = checkpoint.metadata["config"], config.fields()
        taken = {name: saved[name] for name in (*SETTINGS_OF_MODULES, "agent_to_module") if name in saved}
        check_size(taken, stored_bytes=stored_bytes(checkpoint.state))
        return config.changed(
            **{name: decode_field(fields[name], each, none_words=False) for name, each in taken.items()}
        )


# --- the directory of one training run ---

RUNS = Path("runs")
LOCK = "train.lock"
WRITTEN = (
    LOCK.removesuffix(".lock"),  # what is locked
    LOCK,
    "config.toml",
    "stop.toml",
    "metrics.jsonl",
    "metrics.csv",
    "summary.json",
    *(f"checkpoints/{name}" for name in ("last", "last.lock", "best", "best.lock")),
)
"""What training writes in a run directory."""
_MAKERS = ("env", "parallel_env", "raw_env")
"""The names of the functions and classes of PettingZoo's modules that make environments."""
_NO_BEST = ": it needs an evaluation, or 20 episodes of training"
MAX_SUMMARY_BYTES = 2**16
_NO_JSON = {"inf": inf, "-inf": -inf, "nan": nan}


class RunDirectory:
    """A run directory that exists.

    Args:
        path: the directory.

    Attributes:
        path: the directory.
        config_file: its `config.toml`.
        stop_file: its `stop.toml`.
        last: the newest checkpoint.
        best: the checkpoint of the best mean return.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.stop_file = path / "stop.toml"
        self.last = runs.last(path)
        self.best = runs.best(path)

    @cached_property
    def metrics(self) -> MetricsFiles:
        """Its metrics; those of before are read on first use."""
        return MetricsFiles(self.path)

    @classmethod
    def create(cls, path: Path, config: AlgorithmConfig) -> "RunDirectory":
        """Make the directory and write the settings.

        Args:
            path: a directory that is missing or empty.
            config: the settings.

        Returns:
            The run.

        Raises:
            ConfigError: the directory has other files already.
        """
        refuse_used(path)
        (path / "checkpoints").mkdir(parents=True, exist_ok=True)
        run = cls(path)
        run.write_config(config)
        return run

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """A run that was begun before.

        Raises:
            ConfigError: the directory has no `config.toml`.
        """
        if not cls(path).config_file.is_file():
            inner = sorted(islice(run_directories(path), 1_000)) if path.is_dir() else []
            below = f"; a run below it is {inner[0]}: plugrad ls {path} lists them" if inner else ""
            raise ConfigError(f"{path} is no run directory: it has no {runs.CONFIG}{below}")
        return cls(path)

    def write_config(self, config: AlgorithmConfig) -> None:
        """Write `config.toml`."""
        with disk_errors("write", self.config_file):
            replace_file(self.config_file, config.to_toml().encode())

    def read_config(self, checkpoint: Checkpoint | None = None) -> AlgorithmConfig:
        """The settings of the run; see `plugrad.cli.run_files.read_settings`.

        Args:
            checkpoint: one of the run's, whose modules the settings get; None: they stay as in the file.
        """
        if checkpoint is None:
            return read_settings(self.config_file, AlgorithmConfig)
        size = stored_bytes(checkpoint.state)
        config = read_settings(self.config_file, AlgorithmConfig, stored_bytes=size)
        return _with_modules_of(config, checkpoint)

    def named_env(self) -> Any:
        """The environment that the settings name, unchecked; None if they name none or cannot be read."""
        with suppress(ConfigError):
            section = read_table(self.config_file).get("environment")
            return section.get("env") if isinstance(section, Mapping) else None
        return None

    def write_stop(self, goals: Goals) -> None:
        """Write `stop.toml`. The seconds are not in it: they are those of one session."""
        kept = {"stop_reward": goals.reward, "stop_timesteps": goals.timesteps}
        text = tomli_w.dumps({name: value for name, value in kept.items() if value is not None})
        with disk_errors("write", self.stop_file):
            replace_file(self.stop_file, text.encode())

    def read_stop(self) -> dict[str, float]:
        """When the run ends: `{"stop_reward": mean return, "stop_timesteps": environment steps}`.

        A key is missing if there is no such goal; both are in a run of an older version, which has no `stop.toml`.

        Raises:
            ConfigError: the file cannot be read, or has something else.
        """
        if not self.stop_file.exists():
            return {}
        found = read_table(self.stop_file)
        reward, timesteps = (found.get(name) for name in ("stop_reward", "stop_timesteps"))
        if reward is not None and type(reward) not in (int, float):
            raise ConfigError(f"{self.stop_file}: stop_reward must be a number, found {reward!r:.100}")
        if timesteps is not None and (type(timesteps) is not int or timesteps < 0):
            raise ConfigError(
                f"{self.stop_file}: stop_timesteps must be a whole number, found {timesteps!r:.100}"
            )
        return found

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write `summary.json`; infinities and nan, which JSON does not have, as texts."""
        path = self.path / "summary.json"
        plain = {name: str(each) if str(each) in _NO_JSON else each for name, each in summary.items()}
        with disk_errors("write", path):
            replace_file(path, f"{json.dumps(plain, indent=2, allow_nan=False)}\n".encode())

    def read_summary(self) -> dict[str, Any]:
        """The outcome of the run; empty if it has not ended.

        Raises:
            ConfigError: the file cannot be read or is no JSON object.
        """
        path = self.path / "summary.json"
        if not path.exists():
            return {}
        try:
            summary = json.loads(read_text(path, MAX_SUMMARY_BYTES))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path} is no JSON: {error}") from error
        if not isinstance(summary, dict):
            raise ConfigError(f"{path}: a JSON object is expected, found {type(summary).__name__}")
        return {name: _NO_JSON.get(str(each), each) for name, each in summary.items()}

    def is_being_trained(self) -> bool:
        """Whether a process trains in it now; False where that cannot be found out."""
        with suppress(OSError):
            fd = os.open(self.path / LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                about = os.fstat(fd)
                if stat.S_ISREG(about.st_mode) and about.st_size:  # whoever trains has written its name there
                    fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(fd)  # and so the lock, if it was free
        return False

    def checkpoint(self, which: str | None = None) -> Path:
        """A checkpoint of the run.

        Args:
            which: "best" or "last"; None: the best if there is one, else the last.

        Raises:
            ConfigError: there is none.
        """
        if which is not None:
            found = self.best if which == "best" else self.last
            if not found.is_dir():
                raise ConfigError(
                    f"{self.path} has no {which} checkpoint{' yet' if which == 'last' else _NO_BEST}"
                )
            return found
        best_or_last = runs.best_or_last(self.path)
        if best_or_last is None:
            raise ConfigError(f"{self.path} has no checkpoint yet")
        return best_or_last

    def newest_undamaged_save(self) -> Checkpoint:
        """The newest save of `last` that can be read; each damaged one is reported on stderr.

        Raises:
            CheckpointError: there is none.
        """
        for save in list_saves(self.last)[::-1] if self.last.is_dir() else []:
            try:
                return load_state(save, kind="algorithm")
            except CheckpointCorruptError as error:
                click.echo(f"plugrad: warning: {error}; trying the one before", err=True)
        raise CheckpointError(f"{self.path} has no readable checkpoint to resume from")


def refuse_used(path: Path) -> None:
    """Refuse a path for a new run unless it is missing or an empty directory.

    Raises:
        ConfigError: it has files already, or is one.
    """
    if path.exists() and (not path.is_dir() or any(each.name != LOCK for each in path.iterdir())):
        raise _not_empty(path)


def _not_empty(path: Path) -> ConfigError:
    try:
        hint = f"go on: {go_on(RunDirectory.open(path).read_config(), path)}; or give another directory"
    except PlugradError:  # it is no run, or its algorithm is not there
        hint = "give another directory"
    return ConfigError(f"--out: {path} is not empty; {hint}")


@contextmanager
def training_lock(path: Path) -> Iterator[None]:
    """A block in which no other process trains in a run directory. Readers need no lock.

    The kernel releases the lock when this process ends, however it ends.

    Args:
        path: the run directory, made if it is missing.

    Raises:
        ConfigError: the path is no directory, or a directory with files that is no run directory; or something that
            training writes is a link, or neither a file nor a directory.
        CheckpointLockedError: another process trains there; names its pid, its host and when it began.
    """
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path} is not a directory")
    names = {each.name for each in path.iterdir()} if path.exists() else set()
    if names and not names & {LOCK, "config.toml"}:
        raise _not_empty(path)
    try:
        for name in WRITTEN:
            refuse_links(path / name, path)
    except CheckpointUnsafeError as error:
        raise ConfigError(str(error)) from None
    refusal = (
        f"{path} is being trained by {{holder}}: wait until it ends, or train in another directory with --out"
    )
    with writer_lock(path / LOCK.removesuffix(".lock"), refusal):
        yield


@contextmanager
def name_missing_plugin(run: Path | None) -> Iterator[None]:
    """A block in which the error of a missing plugin names its distribution.

    Args:
        run: the run directory whose last checkpoint says which distribution that was; None: the error stays as it is.
    """
    try:
        yield
    except (AlgorithmNotFoundError, BackendNotFoundError):
        if run is not None and (last := RunDirectory(run).last).is_dir():
            checkpoint = load_checkpoint(last)
            with with_distribution_hint(checkpoint.path, checkpoint.metadata):
                raise
        raise


def default_path(config: AlgorithmConfig, algorithm: str) -> Path:
    """Make a new directory `runs/<algorithm>-<env>-<backend>-s<seed>-<time>`.

    Args:
        config: the settings of the run.
        algorithm: its short name.

    Returns:
        The directory, below the current one. A number is appended if the name is taken.

    Raises:
        CheckpointUnsafeError: `runs` is a link.
    """
    name = "offline" if config.env is None else str(config.env)
    *modules, last = re.split(r"[:.]", name.rpartition("/")[2])
    if modules and last in _MAKERS:  # a game of PettingZoo has the name of its module
        name = modules[-1]
    env = re.sub(r"[^A-Za-z0-9_.-]", "_", name.rpartition(":")[2].rpartition("/")[2])
    stamp = time.strftime("%Y%m%d-%H%M%S")
    first = RUNS / f"{algorithm}-{env}-{config.backend}-s{config.seed}-{stamp}"
    path, number = first, 1
    refuse_links(RUNS, Path())
    while True:
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            number += 1
            path = first.with_name(f"{first.name}-{number}")
        else:
            return path
