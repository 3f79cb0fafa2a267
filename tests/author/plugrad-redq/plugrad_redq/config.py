"""The settings of REDQ."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from plugrad import OffPolicyConfig
from plugrad.config import field


@dataclass(frozen=True, kw_only=True)
class REDQConfig(OffPolicyConfig):
    """Settings of REDQ beside those of every off-policy algorithm.

    20 gradient steps of the critics follow each environment step, and the policy takes the last of them.
    """

    default_model_config: ClassVar[Mapping[str, Any]] = {
        "fcnet_hiddens": [256, 256],
        "fcnet_activation": "relu",
    }

    lr: float | list[list[float]] = field(3e-4, schedulable=True, help="learning rate of all three parts")
    num_envs_per_env_runner: int = field(1)
    train_batch_size: int = field(20 * 256)
    random_steps: int = field(5000)
    num_steps_sampled_before_learning_starts: int = field(5000)
    num_critics: int = field(10, minimum=2, help="critics of the ensemble, N")
    num_critics_of_targets: int = field(2, minimum=1, help="of them the least value is a target's, M")
    policy_delay: int = field(20, minimum=1, help="gradient steps of the critics for one of the policy, G")
