"""The settings of DQN."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from plugrad import OffPolicyConfig
from plugrad.config import field


@dataclass(frozen=True, kw_only=True)
class DQNConfig(OffPolicyConfig):
    """Settings of DQN beside those of every off-policy algorithm; all are arguments of `.training(...)`."""

    default_model_config: ClassVar[Mapping[str, Any]] = {
        "fcnet_hiddens": [256, 256],
        "fcnet_activation": "relu",
    }
    """Wider than the built-in default."""

    lr: float | list[list[float]] = field(
        1e-3, help="learning rate: a float or [[timestep, value], ...]", schedulable=True
    )
    train_batch_size: int = field(4096)
    minibatch_size: int | None = field(64)
    rollout_fragment_length: int | None = field(16)
    grad_clip: float | None = field(10.0, help="limit on the gradient; none: no limit")
    num_steps_sampled_before_learning_starts: int = field(1000)
    epsilon: float | list[list[float]] = field(
        [[0, 1.0], [10_000, 0.05]],
        minimum=0,
        maximum=1,
        schedulable=True,
        help="share of random actions while exploring",
    )
    target_update: str = field("update")
    target_network_update_freq: int = field(500)
    tau: float = field(1.0)
    double_q: bool = field(
        True,
        help="the online network chooses the next action, the target network values it (van Hasselt 2016)",
    )
    dueling: bool = field(True, help="separate heads for state value and advantages (Wang et al. 2016)")
    huber_delta: float = field(1.0, above=0, help="beyond this TD error the loss grows linearly")
    replay_buffer_config: dict[str, Any] = field({"capacity": 100_000})
