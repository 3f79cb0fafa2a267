"""What one gradient step costs in an update of its own: `Learner.update` beside its program alone.

`python benchmarks/one_step.py [--only dqn] [--rounds 300]`. Off-policy algorithms live on such updates. Times are of
the processor, not of the clock on the wall. Every learner runs in a process of its own. `--steps 8` takes so many
gradient steps in one update. `--loop` trains with one environment and one gradient step per environment step, and
shows where an environment step's time goes.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from time import process_time
from typing import Any

import gymnasium as gym
import numpy as np
from alone import run_alone
from record import add_options, save
from report import machine, table

MODES = ("torch:none", "torch:recorded", "torch:complete_update", "tf2:auto", "jax:auto")
CELLS = {"64 rows, 2x64": (64, 64), "256 rows, 2x256": (256, 256)}
"""`{name: (rows of a minibatch, width of the layers)}`."""
STAGES = ("env", "act", "sample", "add", "draw", "update", "program", "rest", "all")
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


def _make_config(algorithm: str, mode: str, minibatch_size: int, width: int) -> Any:
    from contestant_plugrad import compile_mode, use_one_thread

    from plugrad.hooks.registry import get_algorithm

    backend, own_mode = mode.split(":")
    use_one_thread(backend)
    return _recorded(
        get_algorithm(algorithm)()
        .framework(backend, compile=compile_mode(own_mode))
        .rl_module(model_config={"fcnet_hiddens": [width, width]})
        .training(minibatch_size=minibatch_size, train_batch_size=minibatch_size)
        .debugging(seed=0)
    )


def _make_learner(algorithm: str, config: Any) -> Any:
    actions: gym.Space[Any] = (
        gym.spaces.Discrete(2) if algorithm == "dqn" else gym.spaces.Box(-1.0, 1.0, (1,))
    )
    observations = gym.spaces.Box(-np.inf, np.inf, (OBS_SIZE,))
    return config.environment(observation_space=observations, action_space=actions).build_learner()


def _recorded(config: Any) -> Any:
    """The config of learners that keep their last program with its arguments."""

    class RecordingLearner(config.get_learner_class()):  # type: ignore[misc]
        """Keeps its last program."""

        def _compile_update(self, step: Any, variables: Sequence[Any], mode: str) -> Any:
            self.recording = _Recording(super()._compile_update(step, variables, mode))
            return self.recording

    return config.learners(learner_class=RecordingLearner)


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


def measure(algorithm: str, mode: str, cell: str, num_rounds: int, *, num_steps: int) -> dict[str, Any]:
    """Measure updates in this process.

    Returns:
        `{"mode": text, "update": seconds of processor time, "program": of the program alone}`, a list each.
    """
    minibatch_size, width = CELLS[cell]
    learner = _make_learner(algorithm, _make_config(algorithm, mode, minibatch_size, width))
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


def measure_loop(algorithm: str, mode: str, cell: str, num_steps: int) -> dict[str, Any]:
    """Train in this process, one gradient step per environment step.

    Returns:
        `{"mode": text, <stage>: seconds of processor time of each environment step}`.
    """
    config = (
        _make_config(algorithm, mode, *CELLS[cell])
        .environment("CartPole-v1" if algorithm == "dqn" else "Pendulum-v1")
        .env_runners(num_envs_per_env_runner=1, rollout_fragment_length=1)
        .training(num_steps_sampled_before_learning_starts=1000)
    )
    algo = config.build_algo()
    for _ in range(1050):
        algo.train()
    (learner,) = algo.learner_group.foreach_learner(lambda each: each)
    (buffer,), (add,) = algo._training._buffers.values(), algo._training._transitions.items()
    laps = Laps()
    laps.measure("all", algo, "train")
    laps.measure("sample", algo, "sample")
    laps.measure("env", algo.env_runner._envs, "step")
    laps.measure("act", learner, "compute_actions")
    laps.measure("add", buffer, "add")
    laps.measure("draw", buffer, "sample")
    laps.measure("update", algo, "update")
    laps.measure("program", learner.recording, "run")
    algo._training._transitions[add[0]] = laps.timed("add", add[1])
    for _ in range(num_steps):
        algo.train()
        laps.end_step()
    return {"mode": learner.update_mode, **laps.by_stage()}


class Laps:
    """Seconds of processor time of functions, by stage and step."""

    def __init__(self) -> None:
        self._steps: list[dict[str, float]] = [{}]

    def measure(self, stage: str, owner: Any, name: str) -> None:
        """Time a method of one object from now on."""
        setattr(owner, name, self.timed(stage, getattr(owner, name)))

    def timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        def call(*args: Any, **kwargs: Any) -> Any:
            start = process_time()
            answer = function(*args, **kwargs)
            step = self._steps[-1]
            step[stage] = step.get(stage, 0.0) + process_time() - start
            return answer

        return call

    def end_step(self) -> None:
        """Begin the next step."""
        self._steps.append({})

    def by_stage(self) -> dict[str, list[float]]:
        """Without what is timed within it: `sample` without `env` and `act`, `update` without `program`."""
        steps = [step for step in self._steps if "update" in step]
        for step in steps:
            step["sample"] -= step["env"] + step["act"]
            step["update"] -= step["program"]
            step["rest"] = 2 * step["all"] - sum(step.values())
        return {stage: [step[stage] for step in steps] for stage in STAGES}


def _seconds(function: Callable[[], Any]) -> float:
    start = process_time()
    function()
    return process_time() - start


def _row(name: Sequence[str], found: dict[str, Any]) -> list[str]:
    pairs = [(figure(found["update"]), figure(found["program"])) for figure in (median, min)]
    return [
        *name,
        *(f"{1e3 * each:.2f}" for update, program in pairs for each in (update, program, update - program)),
    ]


def _loop_row(name: Sequence[str], found: dict[str, Any]) -> list[str]:
    return [*name, *(f"{1e3 * median(found[stage]):.3f} ({1e3 * min(found[stage]):.3f})" for stage in STAGES)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--steps", type=int, default=1, help="gradient steps of one update")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=ALGORITHMS, default=ALGORITHMS)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--cells", nargs="+", choices=list(CELLS), default=list(CELLS))
    parser.add_argument(
        "--measure", nargs=3, metavar=("ALGORITHM", "MODE", "CELL"), help="measure here; print JSON"
    )
    add_options(parser)
    parser.add_argument("--loop", action="store_true", help="train with an environment")
    options = parser.parse_args()
    if options.measure:
        how = measure_loop if options.loop else partial(measure, num_steps=options.steps)
        print(json.dumps(how(*options.measure, options.rounds)))
        return
    more = ("--loop",) if options.loop else ("--steps", options.steps)
    found = {
        (algorithm, cell, mode): run_alone(
            "one_step.py",
            *("--measure", algorithm, mode, cell, "--rounds", options.rounds, *more),
            core=options.core,
        )
        for algorithm in options.only
        for cell in options.cells
        for mode in options.modes
    }
    print(machine(), "\n")
    if options.loop:
        header = ["algorithm", "cell", "mode", *STAGES]
        print("Median (best) ms of one environment step:\n")
        print(table(header, [_loop_row(name, each) for name, each in found.items()]))
        return
    parts = [
        f"{figure} {part} ms" for figure in ("median", "best") for part in ("update", "program", "around")
    ]
    print(table(["algorithm", "cell", "mode", *parts], [_row(name, each) for name, each in found.items()]))
    figures = {" ".join(name): 1e3 * median(each["update"]) for name, each in found.items()}
    save(options.save, "one step", figures)


if __name__ == "__main__":
    main()
