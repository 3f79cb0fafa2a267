"""A recurrent module as a user of TensorFlow writes it."""

import tensorflow as tf

from plugrad import Columns
from plugrad_tf2 import Tf2RLModule


class OwnLSTM(Tf2RLModule):
    """Keras' LSTM with two heads."""

    def setup(self):
        self.lstm = tf.keras.layers.LSTM(8, return_sequences=True, return_state=True)
        self.heads = [tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)]
        self.lstm.build((None, None, self.observation_space.shape[0]))
        for head in self.heads:
            head.build((None, 8))

    def get_initial_state(self):
        return {"h": tf.zeros(8), "c": tf.zeros(8)}

    def _forward(self, batch, **kwargs):
        state = batch[Columns.STATE_IN]
        outputs, h, c = self.lstm(batch[Columns.OBS], initial_state=[state["h"], state["c"]])
        return {
            Columns.ACTION_DIST_INPUTS: self.heads[0](outputs),
            Columns.VF_PREDS: self.heads[1](outputs)[..., 0],
            Columns.STATE_OUT: {"h": h, "c": c},
        }
