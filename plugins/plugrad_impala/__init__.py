"""IMPALA and APPO as plugins of plugrad: actor-critic algorithms that learn from samples of older weights.

Sources: Espeholt et al. 2018, "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
Architectures", arXiv:1802.01561; Luo et al. 2020, "IMPACT: Importance Weighted Asynchronous Architectures with Clipped
Target Networks", arXiv:1912.00167, which RLlib calls APPO.

`impala` and `appo` are what the entry points name; `IMPALAConfig` and `APPOConfig` are for users. The other names are
for losses of your own that use V-trace.
"""

from plugrad_impala import appo, impala
from plugrad_impala.appo_config import APPOConfig
from plugrad_impala.connectors import VTraceSequences
from plugrad_impala.impala_config import IMPALAConfig
from plugrad_impala.vtrace import vtrace_of_sequences

__all__ = ["APPOConfig", "IMPALAConfig", "VTraceSequences", "appo", "impala", "vtrace_of_sequences"]
