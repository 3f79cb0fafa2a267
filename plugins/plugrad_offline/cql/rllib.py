"""RLlib's defaults for CQL, as of RLlib 2.60. Data only.

RLlib's `min_q_weight` is 5 beside the whole squared TD error, which is 2.5 beside half of it.
"""

from typing import Any, Final

RLLIB_DEFAULTS: Final[dict[str, Any]] = {
    "train_batch_size": 256,
    "minibatch_size": None,
    "critic_lr": 1e-3,
    "alpha_lr": 1e-3,
    "min_q_weight": 2.5,
    "evaluation_interval": None,
    "model_config": {"fcnet_hiddens": [256, 256]},
}
