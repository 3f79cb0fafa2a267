"""The settings of TD3."""

from dataclasses import dataclass
from typing import Any, ClassVar

from plugrad.config import field
from plugrad_sac.actor_critic_config import ActorCriticConfig
from plugrad_sac.plain_models import PlainTD3


@dataclass(frozen=True, kw_only=True)
class TD3Config(ActorCriticConfig):
    """Settings of TD3 beside those of every off-policy algorithm; all are arguments of `.training(...)`.

    Noise is in units of actions rescaled to [-1, 1].
    """

    model_class: ClassVar[Any] = PlainTD3

    lr: float | list[list[float]] = field(1e-3)
    exploration_noise: float = field(
        0.1, above=0, help="standard deviation of the noise of exploring actions"
    )
    target_policy_noise: float | list[list[float]] = field(
        0.2,
        schedulable=True,
        minimum=0,
        help="standard deviation of the noise of the target policy's actions",
    )
    target_noise_clip: float = field(0.5, minimum=0, help="limit on the noise of the target policy")
    policy_delay: int = field(2, minimum=1, help="gradient steps of the critics for each step of the policy")
    target_network_update_freq: int = field(2)
