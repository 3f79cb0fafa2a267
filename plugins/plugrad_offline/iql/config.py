"""The settings of IQL."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from plugrad.config import field
from plugrad_offline.transition_config import TransitionConfig


@dataclass(frozen=True, kw_only=True)
class IQLConfig(TransitionConfig):
    """Settings of IQL beside those of every offline algorithm; all are arguments of `.training(...)`.

    The defaults are the paper's for locomotion (arXiv:2110.06169, section 5.1), except the policy's learning rate: in
    the paper it falls to 0 along a cosine. Give `actor_lr` a schedule for that.
    """

    default_model_config: ClassVar[Mapping[str, Any]] = {
        "fcnet_hiddens": [256, 256],
        "fcnet_activation": "relu",
    }
    """The paper's networks."""

    value_lr: float | list[list[float]] | None = field(
        None, schedulable=True, minimum=0, help="learning rate of the value network; None: lr"
    )
    expectile: float = field(
        0.7,
        above=0,
        maximum=1,
        help="which expectile of the critics' values is a state's value: 0.5 the mean, near 1 the largest",
    )
    beta: float = field(
        3.0, above=0, help="weight of the advantages in the exponent: the inverse temperature"
    )
    max_weight: float = field(100.0, above=0, help="limit on exp(beta A), the weight of an action")
