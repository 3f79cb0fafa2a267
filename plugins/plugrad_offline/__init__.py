"""Offline reinforcement learning as plugins of plugrad: MARWIL, CQL and IQL learn from recorded episodes alone.

The `plugin` of each folder is what its entry point names; the configs are for users.
"""

from plugrad_offline.cql import CQLConfig
from plugrad_offline.iql import IQLConfig
from plugrad_offline.marwil import MARWILConfig

__all__ = ["CQLConfig", "IQLConfig", "MARWILConfig"]
