"""RLlib's defaults for CQL, as of RLlib 2.60. Data only."""

from typing import Any, Final

RLLIB_DEFAULTS: Final[dict[str, Any]] = {
    "train_batch_size": 256,
    "minibatch_size": None,
    "critic_lr": 1e-3,
    "alpha_lr": 1e-3,
    "evaluation_interval": None,
    "model_config": {"fcnet_hiddens": [256, 256]},
}
