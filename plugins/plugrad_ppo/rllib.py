"""RLlib's defaults for PPO, as of RLlib 2.60. Data only; `tests/backends/test_rllib_defaults.py` compares each."""

from typing import Any, Final

RLLIB_DEFAULTS: Final[dict[str, Any]] = {
    "lr": 5e-5,
    "train_batch_size": 4000,
    "minibatch_size": 128,
    "num_epochs": 30,
    "grad_clip": None,
    "lambda_": 1.0,
    "clip_param": 0.3,
    "vf_loss_coeff": 1.0,
    "vf_clip_param": 10.0,
    "use_kl_loss": True,
    "num_envs_per_env_runner": 1,
    "model_config": {"fcnet_hiddens": [256, 256], "free_log_std": False},
}
