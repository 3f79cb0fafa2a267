"""Soft Actor-Critic (SAC) and Twin Delayed DDPG (TD3) as plugins of plugrad.

Sources: Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", arXiv:1812.05905; Christodoulou 2019,
"Soft Actor-Critic for Discrete Action Settings", arXiv:1910.07207; Fujimoto et al. 2018, "Addressing Function
Approximation Error in Actor-Critic Methods", arXiv:1802.09477.

`sac` and `td3` are what the entry points name; `SACConfig` and `TD3Config` are for users.
"""

from plugrad_sac import sac, td3
from plugrad_sac.sac_config import SACConfig
from plugrad_sac.td3_config import TD3Config

__all__ = ["SACConfig", "TD3Config", "sac", "td3"]
