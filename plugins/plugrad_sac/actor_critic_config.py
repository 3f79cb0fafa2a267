"""`ActorCriticConfig`: the settings that SAC and TD3 share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from plugrad import OffPolicyConfig
from plugrad.config import field


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(OffPolicyConfig):
    """Settings of off-policy algorithms with a policy and critics; all are arguments of `.training(...)`."""

    default_model_config: ClassVar[Mapping[str, Any]] = {
        "fcnet_hiddens": [256, 256],
        "fcnet_activation": "relu",
    }
    """The papers' networks, and those of TD3's own code."""

    lr: float | list[list[float]] | None = field(  # type: ignore[assignment]
        3e-4,
        schedulable=True,
        help="learning rate of parts without one of their own: a float or [[timestep, value], ...]",
    )
    actor_lr: float | list[list[float]] | None = field(
        None, schedulable=True, minimum=0, help="learning rate of the policy; None: lr"
    )
    critic_lr: float | list[list[float]] | None = field(
        None, schedulable=True, minimum=0, help="learning rate of the critics; None: lr"
    )
    num_envs_per_env_runner: int = field(1)
    min_sample_timesteps_per_iteration: int = field(100)
    random_steps: int = field(100)
