"""Deep Q-learning as a plugin of plugrad: double, dueling, n-step, prioritised replay.

Source: Mnih et al. 2015, doi:10.1038/nature14236; the papers of the extensions are named where they are computed.

`plugin` is what the entry point names; `DQNConfig` is for users.
"""

from plugrad_dqn import plugin
from plugrad_dqn.config import DQNConfig

__all__ = ["DQNConfig", "plugin"]
