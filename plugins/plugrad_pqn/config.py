"""The settings of PQN."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from plugrad import AlgorithmConfig
from plugrad.config import field


@dataclass(frozen=True, kw_only=True)
class PQNConfig(AlgorithmConfig):
    """Settings of PQN beside those of every algorithm; all are arguments of `.training(...)`."""

    default_model_config: ClassVar[Mapping[str, Any]] = {
        "fcnet_hiddens": [256, 256],
        "fcnet_activation": "relu",
        "layer_norm": True,
    }
    """Layer norms keep the values bounded where DQN has a target network (arXiv:2407.04811, section 3.3)."""

    lr: float | list[list[float]] = field(
        2.5e-4, help="learning rate: a float or [[timestep, value], ...]", schedulable=True
    )
    num_envs_per_env_runner: int = field(32)
    train_batch_size: int = field(2048, help="environment steps per update, at least")
    minibatch_size: int | None = field(128, help="rows per gradient step; none: the whole batch")
    num_epochs: int = field(4, help="passes over each batch")
    grad_clip: float | None = field(10.0, help="limit on the gradient; none: no limit")
    lambda_: float = field(
        0.65, minimum=0, maximum=1, help="lambda of Q(lambda): 0 trusts the values, 1 the rewards"
    )
    epsilon: float | list[list[float]] = field(
        [[0, 1.0], [100_000, 0.05]],
        minimum=0,
        maximum=1,
        schedulable=True,
        help="share of random actions while exploring",
    )

    @property
    def needs_whole_batch(self) -> str:
        """See `Config.needs_whole_batch`: an episode and the weights are all that targets need."""
        return ""
