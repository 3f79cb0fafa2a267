"""What one gradient step costs in an update of its own: `Learner.update` beside its program alone.

`python benchmarks/one_step.py [--only dqn] [--rounds 300]`. Off-policy algorithms live on such updates. Times are those of
the processor, not of the clock on the wall. Every learner runs in a process of its own, and so do the updates of `--rows 512`,
which divides that many rows into one step of each minibatch.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from statistics import median
from time import process_time
from typing import Any

import gymnasium as gym
import numpy as np
from alone import run_alone
from record import add_options, save
from report import machine, table

MODES = ("torch:none", "torch:complete_update", "tf2:auto")
CELLS = {"64 rows, 2x64": (64, 64), "256 rows, 2x256": (256, 256)}
"""`{name: (rows of a minibatch, width of the layers)}`."""
ALGORITHMS = ("dqn", "sac", "td3")
OBS_SIZE = 4


class _Recording:
    """A program that keeps its arguments, to be run again alone."""

    def __init__(self, program: Any) -> None:
        self.program = program
        self.arguments: tuple[Any, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)

    def run(self, *arguments: Any) -> Any:
        self.arguments = arguments
        return self.program.run(*arguments)


def _make_learner(algorithm: str, mode: str, minibatch_size: int, width: int) -> Any:
    from contestant_plugrad import use_one_thread

    from plugrad.hooks.registry import get_algorithm

    backend, compile_mode = mode.split(":")
    use_one_thread(backend)
    actions: gym.Space[Any] = (
        gym.spaces.Discrete(2) if algorithm == "dqn" else gym.spaces.Box(-1.0, 1.0, (1,))
    )
    config = (
        get_algorithm(algorithm)()
        .environment(observation_space=gym.spaces.Box(-np.inf, np.inf, (OBS_SIZE,)), action_space=actions)
        .framework(backend, compile=compile_mode)
        .rl_module(model_config={"fcnet_hiddens": [width, width]})
        .training(minibatch_size=minibatch_size, train_batch_size=minibatch_size)
        .debugging(seed=0)
    )
    return _recorded(config)


def _recorded(config: Any) -> Any:
    class RecordingLearner(config.get_learner_class()):  # type: ignore[misc]
        """Keeps its last program with the arguments."""

        def _compile_update(self, step: Any, variables: Sequence[Any], mode: str) -> Any:
            self.recording = _Recording(super()._compile_update(step, variables, mode))
            return self.recording

    return config.learners(learner_class=RecordingLearner).build_learner()


def _make_batch(algorithm: str, rows: int, rng: np.random.Generator) -> dict[str, Any]:
    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape, dtype=np.float32)

    return {
        "obs": normal(rows, OBS_SIZE),
        "actions": rng.integers(2, size=rows) if algorithm == "dqn" else np.tanh(normal(rows, 1)),
        "rewards": normal(rows),
        "new_obs": normal(rows, OBS_SIZE),
        "terminateds": rng.random(rows) < 0.05,
        "n_step": np.ones(rows, np.float32),
    }


def measure(algorithm: str, mode: str, cell: str, num_rounds: int, num_steps: int) -> dict[str, Any]:
    """Measure updates in this process.

    Returns:
        `{"mode": text, "update": seconds of processor time, "program": of the program alone}`, a list each.
    """
    minibatch_size, width = CELLS[cell]
    learner = _make_learner(algorithm, mode, minibatch_size, width)
    rng, seconds = np.random.default_rng(0), {"update": [], "program": []}  # type: ignore[var-annotated]
    for n in range(num_rounds + 20):
        batch = _make_batch(algorithm, num_steps * minibatch_size, rng)
        timesteps = {"num_env_steps_sampled_lifetime": n}
        update = _seconds(lambda b=batch, t=timesteps: learner.update(b, timesteps=t))  # type: ignore[misc]
        program = _seconds(lambda: _replay(learner))
        if n >= 20:
            seconds["update"].append(update)
            seconds["program"].append(program)
    return {"mode": learner.update_mode, **seconds}


def _replay(learner: Any) -> None:
    """Run the last program again, alone. Metrics are copied to the host as always."""
    learner._convert_to_numpy(learner.recording.program.run(*learner.recording.arguments))


def _seconds(function: Callable[[], Any]) -> float:
    start = process_time()
    function()
    return process_time() - start


def _row(name: Sequence[str], found: dict[str, Any]) -> list[str]:
    pairs = [(figure(found["update"]), figure(found["program"])) for figure in (median, min)]
    return [*name, *(f"{1e3 * each:.2f}" for update, program in pairs for each in (update, program, update - program))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--steps", type=int, default=1, help="gradient steps of one update")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=ALGORITHMS, default=ALGORITHMS)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--cells", nargs="+", choices=list(CELLS), default=list(CELLS))
    parser.add_argument("--measure", nargs=3, metavar=("ALGORITHM", "MODE", "CELL"), help="measure here; print JSON")
    add_options(parser)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure, options.rounds, options.steps)))
        return
    found = {
        (algorithm, cell, mode): run_alone(
            "one_step.py",
            *("--measure", algorithm, mode, cell, "--rounds", options.rounds, "--steps", options.steps),
            core=options.core,
        )
        for algorithm in options.only
        for cell in options.cells
        for mode in options.modes
    }
    print(machine(), "\n")
    parts = [f"{figure} {part} ms" for figure in ("median", "best") for part in ("update", "program", "around")]
    print(table(["algorithm", "cell", "mode", *parts], [_row(name, each) for name, each in found.items()]))
    figures = {" ".join(name): 1e3 * median(each["update"]) for name, each in found.items()}
    save(options.save, "one step", figures)


if __name__ == "__main__":
    main()
