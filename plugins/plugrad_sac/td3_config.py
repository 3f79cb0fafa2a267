"""The settings of TD3."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from plugrad import OffPolicyConfig
from plugrad.config import field


@dataclass(frozen=True, kw_only=True)
class TD3Config(OffPolicyConfig):
    """Settings of TD3 beside those of every off-policy algorithm; all are arguments of `.training(...)`.

    Noise is in units of actions rescaled to [-1, 1].
    """

    default_model_config: ClassVar[Mapping[str, Any]] = {
        "fcnet_hiddens": [256, 256],
        "fcnet_activation": "relu",
    }
    """The networks of the paper's own code."""

    lr: float | list[list[float]] = field(
        1e-3,
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
