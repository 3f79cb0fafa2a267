"""Updates of networks with convolutions: the same numbers in all modes, and on the CPU by the faster program."""

from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest
from learning import ppo_batch, ppo_config, weights

from plugrad import Columns, Learner
from plugrad_ppo import PPOConfig

pytestmark = pytest.mark.cross_product

ROWS, SIDE = 8, 12


def torch_model() -> Any:
    import torch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.convolution = torch.nn.Conv2d(1, 4, 4, 2)
            self.heads = torch.nn.Linear(100, 3)

        def forward(self, obs: Any) -> Any:
            images = torch.relu(self.convolution(obs.permute(0, 3, 1, 2) / 255.0))
            outputs = self.heads(images.flatten(1))
            return outputs[:, :2], outputs[:, 2]

    return Model()


def tf2_model() -> Any:
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    images = tf.keras.Input((SIDE, SIDE, 1))
    features = tf.keras.layers.Conv2D(4, 4, 2, activation="relu")(tf.keras.layers.Rescaling(1 / 255)(images))
    heads = [tf.keras.layers.Dense(width)(tf.keras.layers.Flatten()(features)) for width in (2, 1)]
    return tf.keras.Model(images, heads)


def jax_model() -> Any:
    nnx = needs.extra("flax.nnx")

    class Model(nnx.Module):
        def __init__(self) -> None:
            rngs = nnx.Rngs(0)
            self.convolution = nnx.Conv(1, 4, (4, 4), strides=2, padding="VALID", rngs=rngs)
            self.heads = nnx.Linear(100, 3, rngs=rngs)

        def __call__(self, obs: Any) -> Any:
            images = nnx.relu(self.convolution(obs / 255.0))
            outputs = self.heads(images.reshape(len(images), -1))
            return outputs[:, :2], outputs[:, 2]

    return Model()


MODELS = {"torch": torch_model, "tf2": tf2_model, "jax": jax_model}
WITHOUT_XLA = "the whole update as one graph without XLA, because its convolutions are faster so"
IN_TURN = "each step one XLA program, because it has convolutions"
ONE_PROGRAM = "the whole update as one XLA program"


def images(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    obs = np.random.default_rng(0).integers(0, 256, (ROWS, *shape), np.uint8)
    return {**ppo_batch(ROWS), Columns.OBS: obs}


def config(backend: str, compile: str, shape: tuple[int, ...]) -> PPOConfig:
    space = gym.spaces.Box(0, 255, shape, np.uint8)
    some = ppo_config(backend, minibatch_size=4, num_epochs=2, lr=1e-3).framework(backend, compile=compile)
    return some.environment(observation_space=space)


def updated(learner: Learner, shape: tuple[int, ...]) -> np.ndarray:
    before = weights(learner)
    learner.update(images(shape))
    assert np.abs(weights(learner) - before).max() > 1e-4
    return weights(learner)


def test_a_models_own_convolutions_run_in_no_loop_of_xla_on_the_cpu(backend: str) -> None:
    shape, found = (SIDE, SIDE, 1), {}
    for mode in ("none", "auto"):
        learner = Learner(config=config(backend, mode, shape), module=MODELS[backend]())
        learner.build()
        found[mode] = updated(learner, shape)
    np.testing.assert_allclose(found["auto"], found["none"], rtol=0, atol=1e-5)
    assert {"torch": "eager", "tf2": WITHOUT_XLA, "jax": IN_TURN}[backend] in learner.update_mode


@pytest.mark.parametrize(
    ("shape", "filters", "tf2_mode"),
    [((84, 84, 4), "nature", WITHOUT_XLA), ((SIDE, SIDE, 1), [[4, 4, 2], [4, 3, 1]], ONE_PROGRAM)],
    ids=["large", "small"],
)
def test_convolutions_of_built_in_networks_give_the_same_numbers_in_all_modes(
    backend: str, shape: tuple[int, ...], filters: Any, tf2_mode: str
) -> None:
    found = {}
    for mode in ("none", "auto"):
        some = config(backend, mode, shape).rl_module(
            model_config={"fcnet_hiddens": [8], "conv_filters": filters, "vf_share_layers": True}
        )
        learner = some.build_learner()
        found[mode] = updated(learner, shape)
    np.testing.assert_allclose(found["auto"], found["none"], rtol=0, atol=1e-5)
    assert {"torch": "eager", "tf2": tf2_mode, "jax": ONE_PROGRAM}[backend] in learner.update_mode
