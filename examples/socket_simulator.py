"""A simulator in another process or language that talks to the learner in lines of JSON over a socket.

The simulator sends `{"observation": [...]}` and gets `{"action": 1}`. At the end of an episode it sends
`{"rewards": [...], "terminated": true, "last_observation": [...]}`. It does not use plugrad: `simulate` could be
C++ code in a game.
"""

import json
import socket
from collections.abc import Iterator
from threading import Thread
from typing import Any, TextIO

import click
import gymnasium as gym
import numpy as np

from plugrad import Columns, Learner, SingleAgentEpisode
from plugrad_ppo import PPOConfig


def simulate(port: int) -> None:
    """The simulator: an agent on a line must reach the right end within 20 steps."""
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rw") as lines:
        try:
            while True:
                place, rewards = 0, []
                while place < 5 and len(rewards) < 20:
                    say(lines, {"observation": [place / 5.0]})
                    place = max(0, place + (1 if hear(lines)["action"] else -1))
                    rewards.append(1.0 if place == 5 else -0.1)
                say(lines, {"rewards": rewards, "terminated": place == 5, "last_observation": [place / 5.0]})
        except (BrokenPipeError, ConnectionResetError, EOFError):
            pass  # the learner has seen enough


def say(lines: TextIO, message: dict[str, Any]) -> None:
    lines.write(json.dumps(message) + "\n")
    lines.flush()


def hear(lines: TextIO) -> dict[str, Any]:
    if line := lines.readline():
        return dict(json.loads(line))
    raise EOFError


def episodes(learner: Learner, lines: TextIO) -> Iterator[SingleAgentEpisode]:
    """Yield the episodes that the simulator plays with the learner's current policy."""
    observations: list[np.ndarray] = []
    acted: list[dict[str, np.ndarray]] = []
    while True:
        message = hear(lines)
        if "observation" in message:
            observations.append(np.array(message["observation"], np.float32))
            acted.append(learner.compute_actions(observations[-1][None]))
            say(lines, {"action": int(acted[-1][Columns.ACTIONS][0])})
            continue
        columns = {name: np.concatenate([each[name] for each in acted]) for name in acted[0]}
        yield SingleAgentEpisode(
            observations=np.stack([*observations, np.array(message["last_observation"], np.float32)]),
            actions=columns.pop(Columns.ACTIONS),
            rewards=np.array(message["rewards"], np.float32),
            terminated=message["terminated"],
            truncated=not message["terminated"],
            extra_model_outputs=columns,
        )
        observations, acted = [], []


@click.command()
@click.option("--backend", default="torch")
def main(backend: str) -> None:
    config = (
        PPOConfig().framework(backend).training(lr=5e-3, num_epochs=8, minibatch_size=64).debugging(seed=0)
    )
    spaces = {
        "default_policy": (gym.spaces.Box(0.0, 1.0, (1,), np.float32), gym.spaces.Discrete(2)),
    }
    learner = config.build_learner(spaces=spaces)
    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=simulate, args=(server.getsockname()[1],), daemon=True).start()
        connection, _ = server.accept()
        with connection, connection.makefile("rw") as lines:
            played = episodes(learner, lines)
            for _ in range(10):
                batch = [next(played) for _ in range(16)]
                print("mean return", np.mean([each.rewards.sum() for each in batch]))
                learner.update(episodes=batch)


if __name__ == "__main__":
    main()
