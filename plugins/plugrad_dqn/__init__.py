"""Deep Q-learning (Mnih et al. 2015) as a plugin of plugrad: double, dueling, n-step, prioritised replay.

`plugin` is what the entry point names; `DQNConfig` is for users.
"""

from plugrad_dqn import plugin
from plugrad_dqn.config import DQNConfig

__all__ = ["DQNConfig", "plugin"]
