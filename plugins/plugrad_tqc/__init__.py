"""Truncated Quantile Critics (TQC) as a plugin of plugrad: SAC with quantiles in place of values.

Source: Kuznetsov et al. 2020, "Controlling Overestimation Bias with Truncated Mixture of Continuous Distributional
Quantile Critics", arXiv:2005.04269.

`plugin` is what the entry point names; `TQCConfig` is for users.
"""

from plugrad_tqc import plugin
from plugrad_tqc.config import TQCConfig

__all__ = ["TQCConfig", "plugin"]
