"""Users' models with BatchNorm and Dropout, the same in each framework: what acts otherwise than it is trained."""

from importlib.util import find_spec

RATE = 0.5
CLASSES = {}
"""By backend, of those that are installed."""

if find_spec("torch"):
    import torch

    class TorchNormed(torch.nn.Module):
        """A policy and a value over BatchNorm and Dropout."""

        def __init__(self, dropout=RATE):
            super().__init__()
            self.body = torch.nn.Sequential(
                torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Dropout(dropout)
            )
            self.head = torch.nn.Linear(8, 3)

        def forward(self, obs):
            outputs = self.head(self.body(obs))
            return outputs[:, :2], outputs[:, 2:]

    CLASSES["torch"] = TorchNormed

if find_spec("tensorflow"):
    import tensorflow as tf

    class Tf2Normed(tf.keras.Model):
        """A policy and a value over BatchNorm and Dropout."""

        def __init__(self, dropout=RATE):
            super().__init__()
            self.body = tf.keras.Sequential(
                [
                    tf.keras.layers.Dense(8),
                    tf.keras.layers.BatchNormalization(),
                    tf.keras.layers.Activation("tanh"),
                    tf.keras.layers.Dropout(dropout),
                ]
            )
            self.head = tf.keras.layers.Dense(3)

        def call(self, obs):
            outputs = self.head(self.body(obs))
            return outputs[:, :2], outputs[:, 2:]

    CLASSES["tf2"] = Tf2Normed

if find_spec("flax"):
    from flax import nnx

    class JaxNormed(nnx.Module):
        """A policy and a value over BatchNorm and Dropout."""

        def __init__(self, dropout=RATE, *, rngs):
            self.body = nnx.Linear(3, 8, rngs=rngs)
            self.norm = nnx.BatchNorm(8, rngs=rngs)
            self.dropout = nnx.Dropout(dropout, rngs=rngs if dropout else None)
            self.head = nnx.Linear(8, 3, rngs=rngs)

        def __call__(self, obs):
            outputs = self.head(self.dropout(nnx.tanh(self.norm(self.body(obs)))))
            return outputs[:, :2], outputs[:, 2:]

    CLASSES["jax"] = JaxNormed


STATISTICS = {
    "torch": ("model.body.1.num_batches_tracked", "model.body.1.running_mean", "model.body.1.running_var"),
    "tf2": ("model.4.moving_mean", "model.5.moving_variance", "model.8.seed_generator_state"),
    "jax": ("model.dropout.rngs.count", "model.norm.mean", "model.norm.var"),
}
"""Names of what they keep beside their parameters."""


def normed(backend, seed=0, **settings):
    """A new one; equal seeds give equal ones."""
    if backend == "torch":
        torch.manual_seed(seed)
        return TorchNormed(**settings)
    if backend == "jax":
        return JaxNormed(**settings, rngs=nnx.Rngs(seed))
    tf.keras.utils.set_random_seed(seed)
    return Tf2Normed(**settings)


def statistics(learner, module_id="default_policy"):
    """What the learner's model keeps beside its parameters, by name."""
    weights = learner.get_weights()[module_id]
    return {name: weights[name] for name in STATISTICS[learner.config.backend] if name in weights}
