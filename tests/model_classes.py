"""Classes of users' models, which a config may name: `RLModuleSpec(module_class="model_classes:TorchNet")`."""

from importlib.util import find_spec

if find_spec("torch"):
    import torch

    class TorchNet(torch.nn.Module):
        """A policy and a value, as wide as `model_config` says."""

        def __init__(self, observation_space, action_space, model_config):
            super().__init__()
            width = model_config.get("width", 8)
            self.body = torch.nn.Linear(observation_space.shape[0], width)
            self.pi, self.vf = torch.nn.Linear(width, int(action_space.n)), torch.nn.Linear(width, 1)

        def forward(self, obs):
            hidden = torch.tanh(self.body(obs))
            return self.pi(hidden), self.vf(hidden)

    class TorchPlain(torch.nn.Sequential):
        """Takes nothing."""

        def __init__(self):
            super().__init__(torch.nn.Linear(3, 2))

    class TorchFrozen(TorchPlain):
        """Of which nothing is trained."""

        def __init__(self):
            super().__init__()
            self.requires_grad_(False)

    class TorchLazy(torch.nn.Sequential):
        """Learns its inputs' widths when it is called."""

        def __init__(self):
            lazy = torch.nn.LazyLinear(8), torch.nn.LazyBatchNorm1d(), torch.nn.LazyLinear(2)
            super().__init__(*lazy)

    class TorchNeedsMore(TorchPlain):
        def __init__(self, depth, action_space=None):
            super().__init__()


if find_spec("tensorflow"):
    import tensorflow as tf

    class Tf2Net(tf.keras.Model):
        """A policy and a value, as wide as `model_config` says."""

        def __init__(self, observation_space, action_space, model_config, **kwargs):
            super().__init__(**kwargs)
            self.body = tf.keras.layers.Dense(model_config.get("width", 8), "tanh")
            self.pi, self.vf = tf.keras.layers.Dense(int(action_space.n)), tf.keras.layers.Dense(1)

        def call(self, obs):
            hidden = self.body(obs)
            return self.pi(hidden), self.vf(hidden)

    class Tf2Plain(tf.keras.Sequential):
        """Takes nothing."""

        def __init__(self, **kwargs):
            super().__init__([tf.keras.layers.Dense(2)], **kwargs)

    class Tf2Frozen(Tf2Plain):
        """Of which nothing is trained."""

        def __init__(self):
            super().__init__()
            self.trainable = False

    class Tf2NeedsMore(Tf2Plain):
        def __init__(self, depth, action_space=None):
            super().__init__()


if find_spec("flax"):
    import jax.numpy as jnp
    from flax import nnx

    class JaxNet(nnx.Module):
        """A policy and a value, as wide as `model_config` says."""

        def __init__(self, observation_space, action_space, model_config):
            rngs, width = nnx.Rngs(0), model_config.get("width", 8)
            self.body = nnx.Linear(observation_space.shape[0], width, rngs=rngs)
            self.pi = nnx.Linear(width, int(action_space.n), rngs=rngs)
            self.vf = nnx.Linear(width, 1, rngs=rngs)

        def __call__(self, obs):
            hidden = nnx.tanh(self.body(obs))
            return self.pi(hidden), self.vf(hidden)

    class JaxPlain(nnx.Sequential):
        """Takes nothing."""

        def __init__(self):
            super().__init__(nnx.Linear(3, 2, rngs=nnx.Rngs(0)))

    class JaxFrozen(nnx.Module):
        """Of which nothing is trained."""

        def __init__(self):
            self.kernel = nnx.Variable(jnp.ones((3, 2)))

        def __call__(self, obs):
            return obs @ self.kernel

    class JaxNeedsMore(JaxPlain):
        def __init__(self, depth, action_space=None):
            super().__init__()
