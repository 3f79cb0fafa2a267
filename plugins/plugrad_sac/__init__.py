"""Soft Actor-Critic (SAC) and Twin Delayed DDPG (TD3) as plugins of plugrad.

Sources: Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", arXiv:1812.05905; Christodoulou 2019,
"Soft Actor-Critic for Discrete Action Settings", arXiv:1910.07207; Fujimoto et al. 2018, "Addressing Function
Approximation Error in Actor-Critic Methods", arXiv:1802.09477.

`sac` and `td3` are what the entry points name; `SACConfig` and `TD3Config` are for users. The other names are for
algorithms that build on twin critics, such as CQL and IQL.
"""

from plugrad_sac import sac, td3
from plugrad_sac.critic_loss import twin_critic_loss, twin_td_errors
from plugrad_sac.networks import POLICY, POLICY_ACTIONS, QF_PREDS, BoxPolicyAndCritics
from plugrad_sac.optimizers import register_optimizers, target_names
from plugrad_sac.sac_config import SACConfig
from plugrad_sac.sac_loss import NEXT_NOISE, NOISE, policy_and_temperature_loss
from plugrad_sac.sac_networks import LOG_ALPHA, SquashedGaussianNetwork
from plugrad_sac.td3_config import TD3Config
from plugrad_sac.twin_critics import CRITICS

__all__ = [
    "CRITICS",
    "LOG_ALPHA",
    "NEXT_NOISE",
    "NOISE",
    "POLICY",
    "POLICY_ACTIONS",
    "QF_PREDS",
    "BoxPolicyAndCritics",
    "SACConfig",
    "SquashedGaussianNetwork",
    "TD3Config",
    "policy_and_temperature_loss",
    "register_optimizers",
    "sac",
    "target_names",
    "td3",
    "twin_critic_loss",
    "twin_td_errors",
]
