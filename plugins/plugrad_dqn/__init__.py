"""Deep Q-learning as a plugin of plugrad: double, dueling, n-step, prioritised replay.

Source: Mnih et al. 2015, doi:10.1038/nature14236; the papers of the extensions are named where they are computed.

`plugin` is what the entry point names; `DQNConfig` is for users. The other names are for algorithms that build on
Q-networks, such as QR-DQN.
"""

from plugrad_dqn import plugin
from plugrad_dqn.config import DQNConfig
from plugrad_dqn.loss import mean_q_loss
from plugrad_dqn.network import QF_PREDS, QNetwork

__all__ = ["QF_PREDS", "DQNConfig", "QNetwork", "mean_q_loss", "plugin"]
