"""One run of plugrad in the zoo, by the command `plugrad train`: `python zoo_plugrad.py BACKEND CELL SEED [seconds]`.

The last line printed is JSON. Seconds are without imports and evaluations; with the word `seconds` they are those of
some thousand steps after a warm-up, and nothing is evaluated.
"""

import json
import shlex
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from contestant_plugrad import use_one_thread
from record import installed
from zoo_cell import Cell
from zoo_cells import CELLS, SECONDS_RANDOM_STEPS
from zoo_evaluation import PACKAGES
from zoo_listener import listener, training_returns
from zoo_settings import OffPolicySettings

from plugrad.cli import main as plugrad

VARIANTS = {
    "torch": ("--backend", "torch"),
    "torch-compiled": ("--backend", "torch", "--framework.compile", "complete_update"),
    "tf2": ("--backend", "tf2"),
    "jax": ("--backend", "jax"),
}


def for_seconds(cell: Cell) -> list[str]:
    """More options of a run for seconds."""
    steps = ["--stop-timesteps", str(cell.warm_up + cell.timed_steps)]
    if not isinstance(cell.options, OffPolicySettings):
        return steps
    early, options = str(SECONDS_RANDOM_STEPS), cell.options
    return [
        *steps,
        *("--training.random_steps", early),
        *("--training.num_steps_sampled_before_learning_starts", early),
        *("--env_runners.rollout_fragment_length", str(options.steps_per_update)),
        *("--training.train_batch_size", str(options.batch_size * options.steps_per_update)),
        *("--rl_module.model_config", f"{{fcnet_hiddens = {options.hiddens}}}"),
    ]


def check_settings(file: Path, cell: Cell, options: OffPolicySettings) -> None:
    """Compare the settings of a run, tuned or default ones, with those of the cell, which the other libraries have.

    Raises:
        ValueError: one of them differs.
    """
    run = tomllib.loads(file.read_text())
    training, every = run["training"], options.steps_per_update
    wanted: dict[str, Any] = {
        "tau": options.tau,
        "random_steps": options.random_steps,
        "num_steps_sampled_before_learning_starts": options.random_steps,
        "minibatch_size": options.batch_size,
        "train_batch_size": options.batch_size * every,
        "gamma": options.gamma,
        "lr": options.lr or {"sac": 3e-4, "td3": 1e-3}[cell.algorithm],
    }
    if cell.algorithm == "td3":
        wanted["exploration_noise"] = options.td3_action_noise
    found = {name: training[name] for name in wanted}
    found |= {"capacity": training["replay_buffer_config"]["capacity"]}
    found |= {
        name: run["env_runners"][name] for name in ("num_envs_per_env_runner", "rollout_fragment_length")
    }
    wanted |= {
        "capacity": options.capacity,
        "num_envs_per_env_runner": 1,
        "rollout_fragment_length": every,
    }
    if found != wanted:
        raise ValueError(f"{cell.name}: the run had {found}, the cell says {wanted}")


def main(variant: str, name: str, seed: str, what: str = "") -> None:
    use_one_thread(variant.partition("-")[0])
    cell, only_seconds = CELLS[name], what == "seconds"
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        typed = [*cell.command, *VARIANTS[variant], "--seed", seed]
        typed += for_seconds(cell) if only_seconds else ()
        listener.begin(cell, only_seconds=only_seconds)
        around = ["--out", str(run), "--plugin", "zoo_listener:listener", "--quiet"]
        around += () if only_seconds else ("--plugin", "zoo_listener:training_returns")
        plugrad([*typed, *around], standalone_mode=False)
        if isinstance(cell.options, OffPolicySettings) and not only_seconds:
            check_settings(run / "config.toml", cell, cell.options)
    found: dict[str, Any] = {"command": shlex.join(["plugrad", *typed]), "mode": listener.mode}
    found |= {"seconds": listener.seconds, "versions": installed(PACKAGES)}
    if not only_seconds:
        found |= {"curve": listener.curve, "returns": listener.returns}
        found |= {"training_returns": list(training_returns.returns)}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
