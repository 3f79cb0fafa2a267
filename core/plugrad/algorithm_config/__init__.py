"""Configs with the methods that build from them, and the settings that off-policy algorithms share."""

from plugrad.algorithm_config.algorithm_config import AlgorithmConfig
from plugrad.algorithm_config.off_policy import OffPolicyConfig

__all__ = ["AlgorithmConfig", "OffPolicyConfig"]
