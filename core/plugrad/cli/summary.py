"""The outcome of a run: `summary.json`, and the last lines that `plugrad train` prints."""

from pathlib import Path
from typing import Any

from rich.console import Console

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.cli.progress import WINDOW, Goals
from plugrad.cli.returns import return_words
from plugrad.cli.train_loop import Outcome

_OF = {"evaluation": " in evaluation", "training": "", "few": f" over fewer than {WINDOW} episodes"}


def env_name(config: AlgorithmConfig) -> str:
    """The environment of a config, in words."""
    return "recorded episodes" if config.env is None else str(config.env)


def summarize(outcome: Outcome, config: AlgorithmConfig, algorithm: str, goals: Goals) -> dict[str, Any]:
    """The content of `summary.json`.

    Args:
        outcome: of the run.
        config: its settings.
        algorithm: its algorithm's short name.
        goals: its goals.

    Returns:
        JSON data; `seconds` is training time, `timesteps` are environment steps, both counted over resumes.
    """
    progress = outcome.progress
    return {
        "algorithm": algorithm,
        "env": env_name(config),
        "backend": config.backend,
        "seed": config.seed,
        "ended": outcome.reason,
        "reward_goal": goals.reward,
        "reward_goal_reached": outcome.goal_reached,
        "best_return_mean": outcome.best_return,
        "best_return_is_of": outcome.best_is_of,
        "return_mean": None if progress is None else progress.return_mean,
        "timesteps": 0 if progress is None else progress.timesteps,
        "iterations": 0 if progress is None else progress.iteration,
        "seconds": 0.0 if progress is None else round(progress.seconds, 3),
    }


def print_summary(console: Console, summary: dict[str, Any], path: Path, *, quiet: bool) -> None:
    """Print how the run ended; the last two lines are its path and its best mean return.

    Args:
        console: where to.
        summary: see `summarize`.
        path: the run directory.
        quiet: print the last two lines only.
    """
    lines = []
    if not quiet:
        what = f"{summary['algorithm']} on {summary['env']} with {summary['backend']}"
        lines += [what, summary["ended"], _effort(summary)]
    best = summary["best_return_mean"]
    lines.append(f"run: {path}")
    words = "none, no episode has ended" if best is None else return_words(best)
    lines.append(f"best mean return: {words}{'' if best is None else _OF[summary['best_return_is_of']]}")
    for line in lines:
        # Paths are to be copied: no wrapping, no colours, no markup.
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _effort(summary: dict[str, Any]) -> str:
    seconds, timesteps = summary["seconds"], summary["timesteps"]
    rate = timesteps / seconds if seconds else 0.0
    iterations = summary["iterations"]
    return f"{timesteps:,} timesteps in {seconds:.1f} s ({rate:,.0f} per second), {iterations:,} iterations"
