"""RLlib's defaults, as of RLlib 2.60, where plugrad's differ. Data only; `test_rllib_defaults.py` compares each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_IMPALA: dict[str, Any] = {
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

DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "ppo": {
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
        },
        "impala": _IMPALA,
        "appo": {
            **_IMPALA,
            "clip_param": 0.4,
            "circular_buffer_num_batches": 8,
            "circular_buffer_iterations_per_batch": 2,
            "target_network_update_freq": 2.0,
            "tau": 1.0,
            "model_config": {"fcnet_hiddens": [256, 256], "free_log_std": False},
        },
        "dqn": {
            "lr": 5e-4,
            "train_batch_size": 32,
            "minibatch_size": None,
            "shuffle_batch_per_epoch": False,
            "rollout_fragment_length": 1,
            "num_envs_per_env_runner": 1,
            "grad_clip": 40.0,
            "replay_buffer_config": {"type": "prioritized", "capacity": 50_000, "alpha": 0.6, "beta": 0.4},
            "model_config": {"fcnet_hiddens": [256, 256], "fcnet_activation": "tanh"},
        },
        "marwil": {
            "lr": 1e-4,
            "train_batch_size": 2000,
            "minibatch_size": None,
            "shuffle_batch_per_epoch": False,
            "num_envs_per_env_runner": 1,
            "evaluation_interval": None,
            "model_config": {"fcnet_hiddens": [256, 256], "vf_share_layers": True, "free_log_std": False},
        },
        "cql": {
            "train_batch_size": 256,
            "minibatch_size": None,
            "critic_lr": 1e-3,
            "alpha_lr": 1e-3,
            "min_q_weight": 2.5,  # RLlib's 5 is beside the whole squared TD error, this beside half of it
            "evaluation_interval": None,
            "model_config": {"fcnet_hiddens": [256, 256]},
        },
        "iql": {
            "train_batch_size": 2000,
            "minibatch_size": None,
            "expectile": 0.8,
            "beta": 0.1,
            "tau": 1.0,
            "evaluation_interval": None,
        },
    }
)
"""`{short name of an algorithm: {setting: value}}`; behaviour cloning has those of MARWIL."""
