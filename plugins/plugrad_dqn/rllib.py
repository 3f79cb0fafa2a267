"""RLlib's defaults for DQN, as of RLlib 2.60. Data only; `tests/backends/test_rllib_defaults.py` compares each."""

from typing import Any, Final

RLLIB_DEFAULTS: Final[dict[str, Any]] = {
    "lr": 5e-4,
    "train_batch_size": 32,
    "minibatch_size": None,
    "shuffle_batch_per_epoch": False,
    "rollout_fragment_length": 1,
    "num_envs_per_env_runner": 1,
    "grad_clip": 40.0,
    "replay_buffer_config": {"type": "prioritized", "capacity": 50_000, "alpha": 0.6, "beta": 0.4},
    "model_config": {"fcnet_hiddens": [256, 256], "fcnet_activation": "tanh"},
}
