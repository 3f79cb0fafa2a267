"""PQN as a plugin of plugrad: Q-learning from what many environments sample now, without replay or target network.

Source: Gallici et al. 2024, "Simplifying Deep Temporal Difference Learning", arXiv:2407.04811.

`plugin` is what the entry point names; `PQNConfig` is for users.
"""

from plugrad_pqn import plugin
from plugrad_pqn.config import PQNConfig

__all__ = ["PQNConfig", "plugin"]
