"""RLlib's defaults, as of RLlib 2.60, where plugrad's differ; `tests/backends/test_rllib_defaults.py` compares each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from plugrad.errors import ConfigError

_IMPALA: dict[str, Any] = {
    "lr": 5e-4,
    "lambda_": 1.0,
    "vf_loss_coeff": 0.5,
    "grad_clip": 40.0,
    "evaluation_explore": True,
    "train_batch_size": 500,
    "rollout_fragment_length": 50,
    "num_envs_per_env_runner": 1,
    "shuffle_batch_per_epoch": False,
    "model_config": {"fcnet_hiddens": [256, 256], "free_log_std": False, "vf_share_layers": True},
}
_MARWIL: dict[str, Any] = {
    "lr": 1e-4,
    "evaluation_explore": True,
    "train_batch_size": 2000,
    "minibatch_size": None,
    "shuffle_batch_per_epoch": False,
    "num_envs_per_env_runner": 1,
    "evaluation_interval": None,
    "model_config": {"fcnet_hiddens": [256, 256], "vf_share_layers": True, "free_log_std": False},
}

DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "plugrad_ppo:PPOConfig": {
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
            "evaluation_explore": True,
            "num_envs_per_env_runner": 1,
            "model_config": {"fcnet_hiddens": [256, 256], "free_log_std": False},
        },
        "plugrad_impala:IMPALAConfig": _IMPALA,
        "plugrad_impala:APPOConfig": {
            **_IMPALA,
            "clip_param": 0.4,
            "circular_buffer_num_batches": 8,
            "circular_buffer_iterations_per_batch": 2,
            "target_network_update_freq": 2.0,
            "tau": 1.0,
            "model_config": {"fcnet_hiddens": [256, 256], "free_log_std": False},
        },
        "plugrad_dqn:DQNConfig": {
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
        "plugrad_offline:MARWILConfig": _MARWIL,
        "plugrad_bc:BCConfig": _MARWIL,
        "plugrad_offline:CQLConfig": {
            "train_batch_size": 256,
            "minibatch_size": None,
            "critic_lr": 1e-3,
            "alpha_lr": 1e-3,
            "min_q_weight": 2.5,  # RLlib's 5 is beside the whole squared TD error, this beside half of it
            "evaluation_interval": None,
            "evaluation_explore": True,
            "model_config": {"fcnet_hiddens": [256, 256]},
        },
        "plugrad_offline:IQLConfig": {
            "train_batch_size": 2000,
            "minibatch_size": None,
            "expectile": 0.8,
            "beta": 0.1,
            "tau": 1.0,
            "evaluation_interval": None,
            "evaluation_explore": True,
        },
    }
)
"""`{"package:config class": {setting: value}}`."""


def defaults_of(config_class: type[Any]) -> dict[str, Any]:
    """RLlib's values for a config class, or for the nearest of its bases that has some.

    Raises:
        ConfigError: none has; names those that have.
    """
    for each in config_class.__mro__:
        if found := DEFAULTS.get(f"{each.__module__.partition('.')[0]}:{each.__name__}"):
            return dict(found)
    known = ", ".join(name.partition(":")[2] for name in DEFAULTS)
    raise ConfigError(f"{config_class.__name__}.rllib_defaults(): RLlib's defaults are known for {known}")
