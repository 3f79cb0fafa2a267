"""Configs with their `build_...` methods, and the settings that off-policy and offline algorithms share."""

from plugrad.algorithm_config.algorithm_config import AlgorithmConfig
from plugrad.algorithm_config.off_policy import OfflineConfig, OffPolicyConfig

__all__ = ["AlgorithmConfig", "OffPolicyConfig", "OfflineConfig"]
