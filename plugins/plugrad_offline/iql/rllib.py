"""RLlib's defaults for IQL, as of RLlib 2.60. Data only."""

from typing import Any, Final

RLLIB_DEFAULTS: Final[dict[str, Any]] = {
    "train_batch_size": 2000,
    "minibatch_size": None,
    "expectile": 0.8,
    "beta": 0.1,
    "tau": 1.0,
    "evaluation_interval": None,
}
