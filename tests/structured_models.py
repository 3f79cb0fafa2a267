"""Users' models of Dict and Tuple observations, for each framework."""

from importlib.util import find_spec

if find_spec("torch"):
    import torch

    class TorchStructured(torch.nn.Module):
        """Reads each part by its key; its shapes are those of the space."""

        def __init__(self, observation_space, action_space):
            super().__init__()
            height, width, channels = observation_space["camera"].shape
            self.image = torch.nn.Linear(height * width * channels, 4)
            self.other = torch.nn.Linear(3 + observation_space["inner"][0].shape[0], 4)
            self.pi, self.vf = torch.nn.Linear(8, int(action_space.n)), torch.nn.Linear(8, 1)
            self.shape = (height, width, channels)

        def forward(self, obs):
            camera, gear, (speed,) = obs["camera"], obs["gear"], obs["inner"]
            assert camera.shape[1:] == self.shape
            assert camera.dtype == gear.dtype == speed.dtype == torch.float32
            hidden = torch.cat(
                [self.image(camera.flatten(1) / 255), self.other(torch.cat([gear, speed], -1))], -1
            )
            return self.pi(torch.tanh(hidden)), self.vf(torch.tanh(hidden))


if find_spec("tensorflow"):
    import tensorflow as tf

    class Tf2Structured(tf.keras.Model):
        """Reads each part by its key; its shapes are those of the space."""

        def __init__(self, observation_space, action_space, **kwargs):
            super().__init__(**kwargs)
            self.shape = observation_space["camera"].shape
            self.image, self.other = tf.keras.layers.Dense(4), tf.keras.layers.Dense(4)
            self.pi, self.vf = tf.keras.layers.Dense(int(action_space.n)), tf.keras.layers.Dense(1)

        def call(self, obs):
            camera, gear, (speed,) = obs["camera"], obs["gear"], obs["inner"]
            assert tuple(camera.shape[1:]) == self.shape
            assert camera.dtype == gear.dtype == speed.dtype == tf.float32
            flat = tf.reshape(camera, (-1, self.shape[0] * self.shape[1] * self.shape[2])) / 255
            hidden = tf.concat([self.image(flat), self.other(tf.concat([gear, speed], -1))], -1)
            return self.pi(tf.tanh(hidden)), self.vf(tf.tanh(hidden))


if find_spec("flax"):
    import jax.numpy as jnp
    from flax import nnx

    class JaxStructured(nnx.Module):
        """Reads each part by its key; its shapes are those of the space."""

        def __init__(self, observation_space, action_space):
            rngs, self.shape = nnx.Rngs(0), observation_space["camera"].shape
            height, width, channels = self.shape
            self.image = nnx.Linear(height * width * channels, 4, rngs=rngs)
            self.other = nnx.Linear(3 + observation_space["inner"][0].shape[0], 4, rngs=rngs)
            self.pi, self.vf = nnx.Linear(8, int(action_space.n), rngs=rngs), nnx.Linear(8, 1, rngs=rngs)

        def __call__(self, obs):
            camera, gear, (speed,) = obs["camera"], obs["gear"], obs["inner"]
            assert camera.shape[1:] == self.shape
            assert camera.dtype == gear.dtype == speed.dtype == jnp.float32
            flat = camera.reshape(camera.shape[0], -1) / 255
            hidden = jnp.concatenate([self.image(flat), self.other(jnp.concatenate([gear, speed], -1))], -1)
            return self.pi(nnx.tanh(hidden)), self.vf(nnx.tanh(hidden))
