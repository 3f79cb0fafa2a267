"""Peak resident memory of SAC's learner, its undo and a replay buffer, in a process of its own for each backend.

    python benchmarks/peak_memory.py --peers PYTHON

The same work for all: two hidden layers of 256, a buffer of 100,000 rows with 17 observed floats and 6 actions, filled,
and 200 updates of 256 rows. PYTHON is one in which stable-baselines3 is installed; without it that row is left out.
Imports are memory, too: the second column is what the process had before anything was built.
"""

# mypy: disable-error-code="import-not-found"

import argparse
import json
import sys
from collections.abc import Iterator

import memory
import numpy as np
from alone import run_alone
from report import machine, table

CAPACITY, CHUNK, UPDATES, BATCH = 100_000, 1_000, 200, 256
OBSERVED, ACTIONS, WIDTHS = 17, 6, [256, 256]
MODES = ("torch:none", "torch:complete_update", "tf2:none", "tf2:auto", "jax:auto")
PEER = "stable-baselines3"


def chunks() -> Iterator[dict[str, np.ndarray]]:
    """The rows of the buffer, a thousand at a time."""
    rng = np.random.default_rng(0)
    for _ in range(CAPACITY // CHUNK):
        yield {
            "obs": rng.standard_normal((CHUNK, OBSERVED), np.float32),
            "new_obs": rng.standard_normal((CHUNK, OBSERVED), np.float32),
            "actions": rng.uniform(-1.0, 1.0, (CHUNK, ACTIONS)).astype(np.float32),
            "rewards": rng.standard_normal(CHUNK, np.float32),
            "terminateds": rng.random(CHUNK) < 0.01,
        }


def measure_plugrad(mode: str) -> dict[str, int]:
    """Bytes of this process, which trains with a backend and a mode of compilation."""
    backend, compile_mode = mode.split(":")
    from gymnasium.spaces import Box

    from plugrad.replay import ReplayBuffer
    from plugrad_sac import SACConfig

    config = SACConfig().framework(backend, compile=compile_mode).debugging(seed=0)
    config = config.rl_module(model_config={"fcnet_hiddens": WIDTHS})
    config = config.environment(
        observation_space=Box(-np.inf, np.inf, (OBSERVED,)), action_space=Box(-1.0, 1.0, (ACTIONS,))
    )
    __import__(f"plugrad_{backend}")
    imported = memory.peak()
    learner = config.build_learner()
    buffer = ReplayBuffer(CAPACITY, np.random.default_rng(0))
    for rows in chunks():
        buffer.add(rows)
    for _ in range(UPDATES):
        learner.update(buffer.sample(BATCH)[0])
    return {"imported": imported, "peak": memory.peak()}


def measure_peer() -> dict[str, int]:
    """Bytes of this process, which trains with stable-baselines3."""
    import gymnasium as gym
    from gymnasium.spaces import Box
    from stable_baselines3 import SAC
    from stable_baselines3.common.logger import Logger

    class Spaces(gym.Env[np.ndarray, np.ndarray]):
        """Is never stepped."""

        observation_space = Box(-np.inf, np.inf, (OBSERVED,))
        action_space = Box(-1.0, 1.0, (ACTIONS,))

    imported = memory.peak()
    model = SAC("MlpPolicy", Spaces(), buffer_size=CAPACITY, policy_kwargs={"net_arch": WIDTHS}, device="cpu")
    model.set_logger(Logger(None, []))
    assert model.replay_buffer is not None
    for rows in chunks():
        columns = [rows[name] for name in ("obs", "new_obs", "actions", "rewards", "terminateds")]
        for values in zip(*columns, strict=True):
            model.replay_buffer.add(*map(np.asarray, values), infos=[{}])
    for _ in range(UPDATES):
        model.train(gradient_steps=1, batch_size=BATCH)
    return {"imported": imported, "peak": memory.peak()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", metavar="PYTHON", help="in which stable-baselines3 is installed")
    parser.add_argument("--only", nargs="+", default=MODES, choices=MODES)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--measure", help=argparse.SUPPRESS)  # what this script calls itself with
    given = parser.parse_args()
    if given.measure:
        found = measure_peer() if given.measure == PEER else measure_plugrad(given.measure)
        print(json.dumps(found))
        return
    rows = []
    for name in [*given.only, *([PEER] if given.peers else [])]:
        python = given.peers if name == PEER else sys.executable
        found = run_alone("peak_memory.py", "--measure", name, core=given.core, python=python)
        mib = [f"{found[each] / 2**20:.0f}" for each in ("peak", "imported")]
        rows.append([name, *mib, f"{(found['peak'] - found['imported']) / 2**20:.0f}"])
    print(machine())
    print(table(["who", "peak MiB", "after imports", "what it adds"], rows))
    if not given.peers:
        print("stable-baselines3 is left out: --peers names no interpreter")


if __name__ == "__main__":
    main()
