"""What a machine with a GPU can show, in one command of some minutes: checks first, then speeds.

    python benchmarks/on_gpu.py --out gpu.json
    python benchmarks/on_gpu.py --dry

Checks are tests of the contract on the device, weights on the device beside weights on the CPU, and NCCL with one rank.
Speeds are one PPO update beside hand-written loops on the same device, in paired rounds. A check that fails ends the
command with 1. `--dry` runs the same checks on the CPU, where there is no GPU, and measures nothing. A backend whose
framework is not installed is left out by name. The machine needs no network.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
from report import table

REPOSITORY = Path(__file__).parents[1]
FRAMEWORKS = {"torch": "torch", "jax": "jax"}
PARITY_UPDATES = 20
MOST_APART = {1: 1e-5, PARITY_UPDATES: 1e-3}
"""`{updates: how far weights on two devices may be apart}`. Sums in another order differ in the last digit, and each
step of Adam, of 1e-3, adds to it."""
MOST_PROCESSES = 12
"""Of tests at a time: each holds some 500 MB of the GPU."""
Check = tuple[str, Callable[[], str]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    parser.add_argument(
        "--dry", action="store_true", help="run the checks without a GPU, and measure nothing"
    )
    parser.add_argument("--backends", nargs="+", choices=[*FRAMEWORKS], default=[*FRAMEWORKS])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--parity", nargs=3, metavar=("BACKEND", "ALGORITHM", "DEVICE"), help=argparse.SUPPRESS
    )
    given = parser.parse_args()
    if given.parity:
        print(json.dumps(weights_after(*given.parity)))
        return
    missing = [each for each in given.backends if find_spec(FRAMEWORKS[each]) is None]
    backends = [each for each in given.backends if each not in missing]
    found: dict[str, Any] = {"machine": describe(backends, given.dry), "left out": missing, "checks": {}}
    failed = False
    for name, check in checks(backends, given.dry):
        begun = perf_counter()
        try:
            said, passed = check(), True
        except Exception as error:
            said, passed = str(error), False
        failed |= not passed
        found["checks"][name] = {"passed": passed, "says": said}
        print(
            f"{'passed' if passed else 'FAILED'}  {name}: {said} ({perf_counter() - begun:.0f} s)", flush=True
        )
    if not given.dry:
        found["speeds"] = {each: SPEEDS[each](given.rounds) for each in backends}
        print(as_table(found["speeds"]))
    if given.out:
        given.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if failed:
        raise SystemExit(1)


def describe(backends: list[str], dry: bool) -> dict[str, str]:
    """Versions and devices.

    Raises:
        SystemExit: there is no GPU, and the run is not dry.
    """
    found = {"python": platform.python_version(), **{each: version(FRAMEWORKS[each]) for each in backends}}
    for backend in backends:
        found[f"device of {backend}"] = device_of(backend, dry)
    if not dry:
        command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        found["gpu"] = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return found


def device_of(backend: str, dry: bool) -> str:
    """The device that is tried: the backend's first, which must be a GPU where the run is not dry."""
    from plugrad.hooks.registry import load_backend

    device: str = load_backend(backend).implementation.backend_info().devices[0]
    if not dry and device.startswith("cpu"):
        raise SystemExit(f"{backend} sees no GPU here; --dry runs the checks on the CPU")
    return "cpu" if dry else device


# --- checks -----------------------------------------------------------------------------------------------------------


def checks(backends: list[str], dry: bool) -> Iterator[Check]:
    """`(name, check)`. A check says what it found, and raises if that is wrong."""
    for backend in backends:
        yield (
            f"contract of {backend}",
            lambda backend=backend: tests(backend, "tests/backends/test_backend_suite.py", ""),
        )
        for algorithm in CASES:
            yield (
                f"{algorithm} on {backend} beside the CPU",
                lambda backend=backend, algorithm=algorithm: parity(
                    backend, algorithm, device_of(backend, dry)
                ),
            )
    if "torch" in backends and not dry:
        yield "torch's CUDA graphs", lambda: tests("torch", "tests/backends/test_cuda.py", "")
        yield (
            "NCCL with one rank",
            lambda: tests("torch", "tests/plugins/test_collectives.py", "nccl_with_one"),
        )


def tests(backend: str, file: str, chosen: str) -> str:
    """Run tests of the repository on the backend's first device. None may be skipped for want of a GPU.

    Raises:
        RuntimeError: one fails or is skipped, or none ran.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file, "-k", chosen]
    if find_spec("xdist") and (cores := min(MOST_PROCESSES, os.cpu_count() or 1)) > 2:
        command += ["-n", str(cores)]
    environment = {**os.environ, "PLUGRAD_TEST_BACKENDS": backend, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    last = (done.stdout.strip().splitlines() or [done.stderr[-300:]])[-1]
    failures = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if done.returncode or re.search(r"GPUs than", done.stdout):
        raise RuntimeError("; ".join([last, *failures[:5]]))
    return last


def parity(backend: str, algorithm: str, device: str) -> str:
    """Compare weights of the same updates on a device and on the CPU, each in a process of its own.

    Raises:
        RuntimeError: they are further apart than `MOST_APART`.
    """
    on_device, on_cpu = (_in_a_process(backend, algorithm, each) for each in (device, "cpu"))
    apart = {
        updates: float(np.max(np.abs(np.subtract(on_device[str(updates)], on_cpu[str(updates)]))))
        for updates in MOST_APART
    }
    said = ", ".join(f"{each:.1e} after {updates} updates" for updates, each in apart.items())
    if not all(apart[updates] <= most for updates, most in MOST_APART.items()):
        raise RuntimeError(f"weights are apart by {said}; allowed {MOST_APART}")
    return f"weights are apart by {said}"


def _in_a_process(backend: str, algorithm: str, device: str) -> dict[str, list[float]]:
    command = [sys.executable, __file__, "--parity", backend, algorithm, device]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def weights_after(backend: str, algorithm: str, device: str) -> dict[str, list[float]]:
    """Train on a device.

    Args:
        backend: short name.
        algorithm: of `CASES`.
        device: as the backend names it.

    Returns:
        `{number of updates: all weights}`.
    """
    rng = np.random.default_rng(0)
    config, batch = CASES[algorithm](rng)
    config = config.framework(backend, device=device, compile="none").debugging(seed=0)
    config = config.rl_module(model_config={"fcnet_hiddens": [32]})
    learner = config.training(
        minibatch_size=None, num_epochs=1, lr=1e-3, optimizer={"eps": 1e-5}
    ).build_learner()
    found = {}
    for number in range(1, PARITY_UPDATES + 1):
        learner.update(batch)
        if number in MOST_APART:
            found[str(number)] = np.concatenate(
                [np.ravel(each) for each in learner.get_weights()["default_policy"].values()]
            ).tolist()
    return found


OBSERVATIONS, ACTIONS, ROWS = gym.spaces.Box(-10, 10, (4,)), gym.spaces.Box(-1, 1, (2,)), 64


def ppo(rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """Random rows of an older policy."""
    from plugrad_ppo import PPOConfig

    config = PPOConfig().environment(observation_space=OBSERVATIONS, action_space=gym.spaces.Discrete(2))
    return config, {
        "obs": _normal(rng, 4),
        "actions": rng.integers(0, 2, ROWS),
        "action_logp": np.full(ROWS, -0.7, np.float32),
        "action_dist_inputs": np.zeros((ROWS, 2), np.float32),
        "advantages": _normal(rng),
        "value_targets": _normal(rng),
    }


def dqn(rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """Random transitions."""
    from plugrad_dqn import DQNConfig

    config = DQNConfig().environment(observation_space=OBSERVATIONS, action_space=gym.spaces.Discrete(2))
    return config, {**_transitions(rng), "actions": rng.integers(0, 2, ROWS)}


def sac(rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """Random transitions."""
    from plugrad_sac import SACConfig

    config = SACConfig().environment(observation_space=OBSERVATIONS, action_space=ACTIONS)
    return config, {**_transitions(rng), "actions": np.tanh(_normal(rng, 2))}


CASES = {"ppo": ppo, "dqn": dqn, "sac": sac}
"""`{algorithm: settings and a batch}`."""


def _normal(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal((ROWS, *shape)).astype(np.float32)


def _transitions(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "obs": _normal(rng, 4),
        "rewards": _normal(rng),
        "new_obs": _normal(rng, 4),
        "terminateds": rng.random(ROWS) < 0.1,
    }


# --- speeds -----------------------------------------------------------------------------------------------------------


def torch_speeds(rounds: int) -> dict[str, dict[str, float]]:
    """`{cell: {contestant: median milliseconds of an update}}`, beside loops written by hand."""
    import update_cuda

    return {cell.name: update_cuda.race(cell, rounds) for cell in update_cuda.CELLS}


def jax_speeds(rounds: int) -> dict[str, dict[str, float]]:
    """The same of JAX, beside a program of the whole update written by hand."""
    from race import rounds as paired_rounds
    from race import runners
    from workload import CELLS

    names, found = ["plugrad-jax-auto", "twin-jax"], {}
    for cell in CELLS.values():
        with runners(names, cell, seed=0, peers=None, core=0) as started:
            for runner in started.values():
                runner.update(0, shuffle=False)
            seconds = paired_rounds(started, rounds)
        found[cell.name] = {name: 1e3 * float(np.median(each)) for name, each in seconds.items()}
    return found


SPEEDS = {"torch": torch_speeds, "jax": jax_speeds}


def as_table(speeds: dict[str, dict[str, dict[str, float]]]) -> str:
    """One line for each contestant; the ratio is to the last one of its cell, the fastest loop written by hand."""
    lines = []
    for backend, cells in speeds.items():
        for cell, found in cells.items():
            twin = [*found][-1]
            lines += [
                [backend, cell, who, f"{each:.2f}", f"{each / found[twin]:.2f}"]
                for who, each in found.items()
            ]
    return table(["framework", "cell", "who", "median ms", "of the last of its cell"], lines)


if __name__ == "__main__":
    main()
