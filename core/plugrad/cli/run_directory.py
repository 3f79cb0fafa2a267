"""The directory of one training run: what was used, what came of it, and where to go on.

config.toml        every setting
metrics.jsonl      one row per iteration; metrics.csv is the same as a table
checkpoints/last   to resume from; checkpoints/best: of the best mean return
summary.json       what the run came to, written when it ends
train.lock         names the process that trains in the directory, as long as it does
"""

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.checkpoint import load_checkpoint, runs, writer_lock
from plugrad.checkpoint.disk import disk_errors
from plugrad.cli.metrics_files import MetricsFiles
from plugrad.cli.progress import EPISODES, RETURN, WINDOW
from plugrad.cli.run_files import read_text
from plugrad.cli.settings_files import read_settings
from plugrad.errors import AlgorithmNotFoundError, BackendNotFoundError, ConfigError
from plugrad.learner.checkpointing import saying_who_had_it

RUNS = Path("runs")
LOCK = "train.lock"
MAX_SUMMARY_BYTES = 2**16


class RunDirectory:
    """A run directory that exists.

    Args:
        path: the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.last = runs.last(path)
        self.best = runs.best(path)

    @cached_property
    def metrics(self) -> MetricsFiles:
        """Its metrics, read when they are asked for first."""
        return MetricsFiles(self.path)

    @classmethod
    def create(cls, path: Path, config: AlgorithmConfig) -> "RunDirectory":
        """Make the directory and write what is used.

        Raises:
            ConfigError: there is something in it already.
        """
        if path.exists() and (not path.is_dir() or any(each.name != LOCK for each in path.iterdir())):
            raise _not_empty(path)
        (path / "checkpoints").mkdir(parents=True, exist_ok=True)
        run = cls(path)
        run.write_config(config)
        return run

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """A run that was begun before.

        Raises:
            ConfigError: this is no run directory.
        """
        if not cls(path).config_file.is_file():
            raise ConfigError(f"{path} is no run directory: it has no config.toml")
        return cls(path)

    def write_config(self, config: AlgorithmConfig) -> None:
        """Write `config.toml`."""
        with disk_errors("write", self.config_file):
            self.config_file.write_text(config.to_toml(), encoding="utf-8")

    def read_config(self, stored_bytes: int = 0) -> AlgorithmConfig:
        """The settings of the run; see `plugrad.cli.settings_files.read_settings`."""
        return read_settings(self.config_file, AlgorithmConfig, stored_bytes=stored_bytes)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write `summary.json`."""
        path = self.path / "summary.json"
        with disk_errors("write", path):
            path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")

    def read_summary(self) -> dict[str, Any]:
        """What the run came to; empty if it has not ended."""
        path = self.path / "summary.json"
        if not path.exists():
            return {}
        try:
            summary = json.loads(read_text(path, MAX_SUMMARY_BYTES))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path} is no JSON: {error}") from error
        if not isinstance(summary, dict):
            raise ConfigError(f"{path}: a JSON object is expected, found {type(summary).__name__}")
        return summary

    def best_return(self) -> float | None:
        """The best mean return so far over `WINDOW` whole episodes, None before there were so many."""
        full = [row[RETURN] for row in self.metrics.rows if RETURN in row and row.get(EPISODES, 0) >= WINDOW]
        return max(full, default=None)

    def checkpoint(self) -> Path:
        """The checkpoint to judge the run by: the best if there is one, else the last.

        Raises:
            ConfigError: there is none.
        """
        found = runs.to_judge(self.path)
        if found is None:
            raise ConfigError(f"{self.path} has no checkpoint yet")
        return found


def _not_empty(path: Path) -> ConfigError:
    return ConfigError(f"--out: {path} is not empty; go on with --resume {path}, or give another directory")


@contextmanager
def training_lock(path: Path) -> Iterator[None]:
    """Keep every other process from training in a run directory; who only reads it needs no lock.

    The kernel releases the lock when this process ends, however it ends.

    Args:
        path: the run directory, made if it is missing.

    Raises:
        ConfigError: it is no directory, or one with files in it that is no run directory.
        CheckpointLockedError: another process trains there; names its pid and host, and since when.
    """
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path} is not a directory")
    names = {each.name for each in path.iterdir()} if path.exists() else set()
    if names and not names & {LOCK, "config.toml"}:
        raise _not_empty(path)
    refusal = (
        f"{path} is being trained by {{holder}}: wait until it ends, or train in another directory with --out"
    )
    with writer_lock(path / LOCK.removesuffix(".lock"), refusal):
        yield


@contextmanager
def saying_what_a_run_needs(run: Path | None) -> Iterator[None]:
    """Within it, the error that a plugin is missing says whose it is, which the run's last checkpoint knows."""
    try:
        yield
    except (AlgorithmNotFoundError, BackendNotFoundError):
        if run is not None and (last := RunDirectory(run).last).is_dir():
            checkpoint = load_checkpoint(last)
            with saying_who_had_it(checkpoint.path, checkpoint.metadata):
                raise
        raise


def default_path(config: AlgorithmConfig, algorithm: str) -> Path:
    """Make `runs/<algorithm>-<env>-<backend>-s<seed>-<time>`, a directory that did not exist before."""
    name = "offline" if config.env is None else str(config.env)
    env = re.sub(r"[^A-Za-z0-9_.-]", "_", name.rpartition(":")[2].rpartition("/")[2])
    stamp = time.strftime("%Y%m%d-%H%M%S")
    first = RUNS / f"{algorithm}-{env}-{config.backend}-s{config.seed}-{stamp}"
    path, number = first, 1
    while True:
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            number += 1
            path = first.with_name(f"{first.name}-{number}")
        else:
            return path
