"""Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347) as a plugin of plugrad.

`plugin` is what the entry point names; `PPOConfig` and `PPOLearner` are for users. The other names are for
algorithms that build on PPO.
"""

from plugrad_ppo import plugin
from plugrad_ppo.config import PPOConfig
from plugrad_ppo.connectors import GeneralAdvantageEstimation, generalized_advantages, standardize
from plugrad_ppo.learner import PPOLearner
from plugrad_ppo.loss import KL_KEY, adapt_kl_coefficients, report_entropy_coefficients

__all__ = [
    "KL_KEY",
    "GeneralAdvantageEstimation",
    "PPOConfig",
    "PPOLearner",
    "adapt_kl_coefficients",
    "generalized_advantages",
    "plugin",
    "report_entropy_coefficients",
    "standardize",
]
