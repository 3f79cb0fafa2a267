"""RLlib's defaults for BC and MARWIL, as of RLlib 2.60. Data only; `test_rllib_defaults.py` compares each."""

from typing import Any, Final

RLLIB_DEFAULTS: Final[dict[str, Any]] = {
    "lr": 1e-4,
    "train_batch_size": 2000,
    "minibatch_size": None,
    "shuffle_batch_per_epoch": False,
    "num_envs_per_env_runner": 1,
    "evaluation_interval": None,
    "model_config": {"fcnet_hiddens": [256, 256], "vf_share_layers": True, "free_log_std": False},
}
