"""QR-DQN as a plugin of plugrad: DQN that learns quantiles of the returns.

Source: Dabney et al. 2018, "Distributional Reinforcement Learning with Quantile Regression", arXiv:1710.10044.

`plugin` is what the entry point names; `QRDQNConfig` is for users.
"""

from plugrad_qrdqn import plugin
from plugrad_qrdqn.config import QRDQNConfig

__all__ = ["QRDQNConfig", "plugin"]
