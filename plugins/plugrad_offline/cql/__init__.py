"""Conservative Q-learning (CQL), the variant CQL(H) on SAC.

Source: Kumar et al. 2020, "Conservative Q-Learning for Offline Reinforcement Learning", arXiv:2006.04779.
"""

from plugrad_offline.cql import plugin
from plugrad_offline.cql.config import CQLConfig
from plugrad_offline.cql.loss import cql_loss

__all__ = ["CQLConfig", "cql_loss", "plugin"]
