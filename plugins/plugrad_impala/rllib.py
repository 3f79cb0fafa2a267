"""RLlib's defaults for IMPALA and APPO, as of RLlib 2.60. Data only; `test_rllib_defaults.py` compares each."""

from typing import Any, Final

IMPALA_DEFAULTS: Final[dict[str, Any]] = {
    "lr": 5e-4,
    "lambda_": 1.0,
    "vf_loss_coeff": 0.5,
    "grad_clip": 40.0,
    "train_batch_size": 500,
    "rollout_fragment_length": 50,
    "num_envs_per_env_runner": 1,
    "shuffle_batch_per_epoch": False,
    "model_config": {"fcnet_hiddens": [256, 256], "free_log_std": False, "vf_share_layers": True},
}

APPO_DEFAULTS: Final[dict[str, Any]] = {
    **IMPALA_DEFAULTS,
    "clip_param": 0.4,
    "circular_buffer_num_batches": 8,
    "circular_buffer_iterations_per_batch": 2,
    "target_network_update_freq": 2.0,
    "tau": 1.0,
    "model_config": {"fcnet_hiddens": [256, 256], "free_log_std": False},
}
