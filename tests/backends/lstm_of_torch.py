"""A recurrent module as a user of torch writes it."""

import torch

from plugrad import Columns
from plugrad_torch import TorchRLModule


class OwnLSTM(TorchRLModule):
    """torch's own LSTM with two heads."""

    def setup(self):
        self.lstm = torch.nn.LSTM(self.observation_space.shape[0], 8, batch_first=True)
        self.policy, self.value = torch.nn.Linear(8, 2), torch.nn.Linear(8, 1)

    def get_initial_state(self):
        return {"h": torch.zeros(8), "c": torch.zeros(8)}

    def _forward(self, batch, **kwargs):
        state = batch[Columns.STATE_IN]
        outputs, (h, c) = self.lstm(batch[Columns.OBS], (state["h"][None], state["c"][None]))
        return {
            Columns.ACTION_DIST_INPUTS: self.policy(outputs),
            Columns.VF_PREDS: self.value(outputs)[..., 0],
            Columns.STATE_OUT: {"h": h[0], "c": c[0]},
        }
