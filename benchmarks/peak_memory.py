"""Peak resident memory of SAC's learner, its undo and a replay buffer, in a process of its own for each backend.

    python benchmarks/peak_memory.py --peers PYTHON --rllib PYTHON

The same work for all: two hidden layers of 256, a buffer of 100,000 rows with 17 observed floats and 6 actions, filled,
and 200 updates of 256 rows. `--peers` names an interpreter with stable-baselines3, `--rllib` one with RLlib: without
them these rows are left out. RLlib keeps rows as episodes, of a thousand steps here, and makes batches of them.
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
PEER, RLLIB = "stable-baselines3", "RLlib"


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


def measure_rllib() -> dict[str, int]:
    """Bytes of this process, which trains with RLlib's learner and its buffer of episodes, on one thread."""
    import torch
    from gymnasium.spaces import Box
    from ray.rllib.algorithms.sac import SACConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode
    from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer

    torch.set_num_threads(1)
    spaces = Box(-np.inf, np.inf, (OBSERVED,), np.float32), Box(-1.0, 1.0, (ACTIONS,), np.float32)
    model = DefaultModelConfig(fcnet_hiddens=WIDTHS, fcnet_activation="relu", head_fcnet_hiddens=[])
    config = SACConfig().environment(observation_space=spaces[0], action_space=spaces[1])
    config = config.rl_module(model_config=model)
    imported = memory.peak()
    learner = config.build_learner(spaces={"default_policy": spaces})
    buffer = EpisodeReplayBuffer(capacity=CAPACITY, batch_size_B=BATCH, batch_length_T=1)
    for rows in chunks():
        seen = [*rows["obs"], rows["new_obs"][-1]]
        made = SingleAgentEpisode(
            observations=seen,
            actions=list(rows["actions"]),
            rewards=rows["rewards"].tolist(),
            observation_space=spaces[0],
            action_space=spaces[1],
            truncated=True,
            len_lookback_buffer=0,
        )
        buffer.add(made.to_numpy())
    before = learner.module["default_policy"].state_dict()
    before = {name: np.array(each) for name, each in before.items()}
    for _ in range(UPDATES):
        learner.update(episodes=buffer.sample(num_items=BATCH, n_step=1, gamma=0.99, sample_episodes=True))
    after = learner.module["default_policy"].state_dict()
    assert any(np.any(before[name] != np.asarray(each)) for name, each in after.items())
    assert all(np.all(np.isfinite(np.asarray(each))) for each in after.values())
    return {"imported": imported, "peak": memory.peak()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", metavar="PYTHON", help="in which stable-baselines3 is installed")
    parser.add_argument("--rllib", metavar="PYTHON", help="in which ray[rllib] is installed")
    parser.add_argument("--only", nargs="+", default=MODES, choices=MODES)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--measure", help=argparse.SUPPRESS)  # what this script calls itself with
    given = parser.parse_args()
    if given.measure:
        others = {PEER: measure_peer, RLLIB: measure_rllib}
        found = others[given.measure]() if given.measure in others else measure_plugrad(given.measure)
        print(json.dumps(found))
        return
    rows = []
    pythons = {name: python for name, python in ((PEER, given.peers), (RLLIB, given.rllib)) if python}
    for name in [*given.only, *pythons]:
        python = pythons.get(name, sys.executable)
        found = run_alone("peak_memory.py", "--measure", name, core=given.core, python=python)
        mib = [f"{found[each] / 2**20:.0f}" for each in ("peak", "imported")]
        rows.append([name, *mib, f"{(found['peak'] - found['imported']) / 2**20:.0f}"])
    print(machine())
    print(table(["who", "peak MiB", "after imports", "what it adds"], rows))
    for name, option in ((PEER, "--peers"), (RLLIB, "--rllib")):
        if name not in pythons:
            print(f"{name} is left out: {option} names no interpreter")


if __name__ == "__main__":
    main()
