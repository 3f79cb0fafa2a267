"""RND as a plugin of plugrad: PPO that is also rewarded for observations that it does not know yet.

Source: Burda et al. 2018, "Exploration by Random Network Distillation", arXiv:1810.12894.

`plugin` is what the entry point names; `RNDConfig` is for users.
"""

from plugrad_rnd import plugin
from plugrad_rnd.config import RNDConfig

__all__ = ["RNDConfig", "plugin"]
