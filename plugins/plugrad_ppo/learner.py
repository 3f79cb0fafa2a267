"""`PPOLearner`: the class to derive from for a variant of PPO; the loss itself is in `plugrad_ppo.loss`."""

from typing import Any

from plugrad.errors import ConfigError
from plugrad.learner import Learner
from plugrad_ppo.config import PPOConfig


class PPOLearner(Learner):
    """A Learner of PPO.

    Raises:
        ConfigError: the config is not a `PPOConfig`.
    """

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        if not isinstance(config, PPOConfig):
            raise ConfigError(f"PPOLearner takes a PPOConfig, found {type(config).__name__}")
        super().__init__(config=config, **kwargs)
