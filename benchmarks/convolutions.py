"""What a gradient step costs in networks with convolutions: PPO on images of 84x84x4, in every mode of compilation.

    python benchmarks/convolutions.py --rounds 5

"Built in" is the network of Atari games in `model_config` (`conv_filters="nature"`), with minibatches of 256. "Own" is
a model of the framework (torch.nn, Keras or flax.nnx) with two convolutions, with minibatches of 32. Times are of the
processor, one core; every learner runs in a process of its own.
"""

import argparse
import json
from statistics import median
from time import perf_counter, process_time
from typing import Any

import gymnasium as gym
import numpy as np
from alone import run_alone
from report import machine, table

MODES = (
    *("torch:none", "torch:complete_update", "tf2:none", "tf2:auto"),
    *("jax:forward_train", "jax:auto"),
)
SHAPE = (84, 84, 4)
ROWS = {"built in": 256, "own": 32}
STEPS = 8
ACTIONS = 4


def torch_model() -> Any:
    """Two convolutions and three dense layers, and so in the others."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = torch.nn
            self.body = layers.Sequential(
                *(layers.Conv2d(4, 16, 8, 4), layers.ReLU(), layers.Conv2d(16, 32, 4, 2), layers.ReLU()),
                *(layers.Flatten(), layers.Linear(2592, 128), layers.ReLU()),
            )
            self.heads = layers.Linear(128, ACTIONS + 1)

        def forward(self, obs: Any) -> Any:
            outputs = self.heads(self.body(obs.permute(0, 3, 1, 2) / 255.0))
            return outputs[:, :ACTIONS], outputs[:, ACTIONS]

    return Model()


def tf2_model() -> Any:
    import tensorflow as tf

    layers = tf.keras.layers
    images = tf.keras.Input(SHAPE)
    x = layers.Conv2D(16, 8, 4, activation="relu")(layers.Rescaling(1 / 255)(images))
    x = layers.Flatten()(layers.Conv2D(32, 4, 2, activation="relu")(x))
    x = layers.Dense(128, activation="relu")(x)
    return tf.keras.Model(images, [layers.Dense(ACTIONS)(x), layers.Dense(1)(x)])


def jax_model() -> Any:
    from flax import nnx

    class Model(nnx.Module):
        def __init__(self) -> None:
            rngs = nnx.Rngs(0)
            self.first = nnx.Conv(4, 16, (8, 8), strides=4, padding="VALID", rngs=rngs)
            self.second = nnx.Conv(16, 32, (4, 4), strides=2, padding="VALID", rngs=rngs)
            self.dense = nnx.Linear(2592, 128, rngs=rngs)
            self.heads = nnx.Linear(128, ACTIONS + 1, rngs=rngs)

        def __call__(self, obs: Any) -> Any:
            x = nnx.relu(self.second(nnx.relu(self.first(obs / 255.0))))
            outputs = self.heads(nnx.relu(self.dense(x.reshape(len(x), -1))))
            return outputs[:, :ACTIONS], outputs[:, ACTIONS]

    return Model()


MODELS = {"torch": torch_model, "tf2": tf2_model, "jax": jax_model}


def make_learner(network: str, mode: str) -> Any:
    from contestant_plugrad import use_one_thread

    from plugrad import Learner
    from plugrad_ppo import PPOConfig

    backend, compile_mode = mode.split(":")
    use_one_thread(backend)
    config = (
        PPOConfig()
        .framework(backend, compile=compile_mode)
        .environment(
            observation_space=gym.spaces.Box(0, 255, SHAPE, np.uint8),
            action_space=gym.spaces.Discrete(ACTIONS),
        )
        .training(minibatch_size=ROWS[network], num_epochs=1)
        .rl_module(model_config={"conv_filters": "nature", "fcnet_hiddens": [512], "vf_share_layers": True})
        .debugging(seed=0)
    )
    if network == "built in":
        return config.build_learner()
    learner = Learner(config=config, module=MODELS[backend]())
    learner.build()
    return learner


def measure(network: str, mode: str, rounds: int) -> dict[str, Any]:
    """Seconds of the first update by the clock, and milliseconds of the processor for a step of later ones."""
    learner, rows = make_learner(network, mode), ROWS[network] * STEPS
    rng = np.random.default_rng(0)
    batch = {
        "obs": rng.integers(0, 256, (rows, *SHAPE), np.uint8),
        "actions": rng.integers(ACTIONS, size=rows),
        "action_logp": np.full(rows, -np.log(ACTIONS), np.float32),
        "action_dist_inputs": np.zeros((rows, ACTIONS), np.float32),
        "advantages": rng.normal(size=rows).astype(np.float32),
        "value_targets": rng.normal(size=rows).astype(np.float32),
    }
    start = perf_counter()
    learner.update(batch)
    first, steps = perf_counter() - start, []
    for _ in range(rounds):
        start = process_time()
        learner.update(batch)
        steps.append((process_time() - start) / STEPS * 1e3)
    return {"first": first, "step": median(steps), "best": min(steps), "runs": learner.update_mode}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--one", nargs=2, metavar=("NETWORK", "MODE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        network, mode = options.one
        print(json.dumps(measure(network, mode, options.rounds)))
        return
    print(machine(), "\n")
    rows = []
    for network in ROWS:
        for mode in MODES:
            found = run_alone(
                "convolutions.py", "--rounds", options.rounds, "--one", network, mode, core=options.core
            )
            times = f"{found['step']:.1f}", f"{found['best']:.1f}", f"{found['first']:.1f}"
            rows.append([network, mode, *times, found["runs"]])
    header = ["network", "backend, mode", "ms per step", "best", "first update, s", "what runs"]
    print(table(header, rows))


if __name__ == "__main__":
    main()
