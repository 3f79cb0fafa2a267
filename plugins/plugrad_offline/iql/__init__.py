"""Implicit Q-learning (IQL).

Source: Kostrikov et al. 2021, "Offline Reinforcement Learning with Implicit Q-Learning", arXiv:2110.06169.
"""

from plugrad_offline.iql import plugin
from plugrad_offline.iql.config import IQLConfig
from plugrad_offline.iql.loss import iql_loss

__all__ = ["IQLConfig", "iql_loss", "plugin"]
