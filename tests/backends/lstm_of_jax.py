"""A recurrent module as a user of JAX writes it."""

import jax.numpy as jnp
from flax import nnx

from plugrad import Columns
from plugrad_jax import JaxRLModule


class OwnLSTM(JaxRLModule):
    """flax's LSTM with two heads."""

    def setup(self):
        rngs = nnx.Rngs(0)
        self.lstm = nnx.OptimizedLSTMCell(self.observation_space.shape[0], 8, rngs=rngs)
        self.policy, self.value = nnx.Linear(8, 2, rngs=rngs), nnx.Linear(8, 1, rngs=rngs)

    def get_initial_state(self):
        return {"h": jnp.zeros(8), "c": jnp.zeros(8)}

    def _forward(self, batch, **kwargs):
        state, steps = batch[Columns.STATE_IN], nnx.RNN(self.lstm, return_carry=True)
        (c, h), outputs = steps(batch[Columns.OBS], initial_carry=(state["c"], state["h"]))
        return {
            Columns.ACTION_DIST_INPUTS: self.policy(outputs),
            Columns.VF_PREDS: self.value(outputs)[..., 0],
            Columns.STATE_OUT: {"h": h, "c": c},
        }
