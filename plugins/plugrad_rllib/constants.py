"""Older constants: keys of results, the id of the only policy, what torch compiles."""

from enum import StrEnum

from plugrad.types import DEFAULT_MODULE_ID

DEFAULT_POLICY_ID = DEFAULT_MODULE_ID
POLICY_LOSS_KEY = "policy_loss"
VF_LOSS_KEY = "vf_loss"
ENTROPY_KEY = "entropy"
LEARNER_RESULTS_CURR_LR_KEY = "curr_lr"
"""`<optimizer>_curr_lr` in what `additional_update` returns."""
LEARNER_RESULTS_CURR_KL_COEFF_KEY = "curr_kl_coeff"
KL_KEY = "mean_kl_loss"
"""Under which a learner reports the divergence that `sampled_kl_values=` carries."""


class TorchCompileWhatToCompile(StrEnum):
    """Two of the values of `config.framework(compile=...)`."""

    COMPLETE_UPDATE = "complete_update"
    FORWARD_TRAIN = "forward_train"
